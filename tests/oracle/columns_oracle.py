#!/usr/bin/env python3
"""Columnar files and their rows by pyarrow and datasets: tests/engine/data/fixtures/columns/.

Writes Parquet and Arrow IPC files of many types, codecs and forms, what datasets' to_parquet and save_to_disk write, and
rows.json: {file: rows, as to_pylist gives them}. Values that JSON lacks are as engine/data/files/columns.h has them. Run it by
`make oracle`.
"""
# requires: pyarrow==26.0.1 datasets==5.2.0
import datetime
import decimal
import json
import math
import os
import random
import shutil
import uuid

import datasets
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "../engine/data/fixtures/columns")
WORDS = ["a", "", "héllo", "日本語", "quote \" and \\ back", "line\nend\r\n\ttab", "\u0001\u001f", "😀👍🏽", "\u2028", "x" * 300, "\u0000nul"]
UTC = datetime.timezone.utc


def plain(value, structs=0):
    """A value as the rows of JSON have it. A dict within a struct loses its None, as with TRL's remove_none_values."""
    if isinstance(value, dict):
        return {key: plain(one, 2 if key == "tools" and structs == 0 else structs + 1)
                for key, one in value.items() if structs < 2 or one is not None}
    if isinstance(value, (list, tuple)):
        return [plain(one, structs) for one in value]
    if isinstance(value, datetime.datetime) and value.tzinfo:
        value = value.astimezone(UTC)
    if isinstance(value, (datetime.date, datetime.time, uuid.UUID)):
        return str(value)
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"bytes": len(value)}
    return value


def rows_of(table):
    return [plain(row) for row in table.to_pylist()]


def types():
    """One column for each type, null in the last row."""
    when = datetime.datetime(2024, 2, 29, 13, 5, 6, 120000)
    old = datetime.datetime(1899, 12, 31, 23, 59, 59, 999999)
    deep = pa.struct([("role", pa.string()), ("parts", pa.list_(pa.struct([("text", pa.large_string()), ("n", pa.int32())])))])
    columns = {
        "null": ([None, None], pa.null()),
        "bool": ([True, False], pa.bool_()),
        **{f"i{n}": ([-(2 ** (n - 1)), 2 ** (n - 1) - 1], getattr(pa, f"int{n}")()) for n in (8, 16, 32, 64)},
        **{f"u{n}": ([0, 2 ** n - 1], getattr(pa, f"uint{n}")()) for n in (8, 16, 32, 64)},
        "f32": ([0.1, -3.0], pa.float32()),
        "f64": ([1e300, 5e-324], pa.float64()),
        "whole": ([16777217.0, -0.0], pa.float64()),
        "nan": ([math.nan, -math.inf], pa.float64()),
        "text": (["héllo \"x\"\n", ""], pa.string()),
        "large": (["日本語", "\\"], pa.large_string()),
        "bytes": ([b"text", b"\xff\xfe\x00"], pa.binary()),
        "large bytes": ([b"", b"\x80"], pa.large_binary()),
        "four": ([b"abcd", b"\xff\xff\xff\xff"], pa.binary(4)),
        "d32": ([when.date(), datetime.date(1, 1, 1)], pa.date32()),
        "d64": ([when.date(), datetime.date(1969, 12, 31)], pa.date64()),
        "t32": ([datetime.time(1, 2, 3), datetime.time(23, 59, 59, 999000)], pa.time32("ms")),
        "t64": ([datetime.time(0, 0, 0, 1), datetime.time(12)], pa.time64("us")),
        "ts": ([when.replace(microsecond=0), old.replace(microsecond=0)], pa.timestamp("s")),
        "tms": ([when, old.replace(microsecond=999000)], pa.timestamp("ms")),
        "tus": ([when, old], pa.timestamp("us")),
        "utc": ([when.replace(tzinfo=UTC), old.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
        "oslo": ([when.replace(tzinfo=UTC), old.replace(tzinfo=UTC)], pa.timestamp("us", "Europe/Oslo")),
        "dec": ([decimal.Decimal("12.50"), decimal.Decimal("-0.01")], pa.decimal128(10, 2)),
        "dec256": ([decimal.Decimal("123456789.125"), decimal.Decimal("0.000")], pa.decimal256(50, 3)),
        "list": ([[1, None, 3], []], pa.list_(pa.int64())),
        "large list": ([["a"], [None, "b"]], pa.large_list(pa.string())),
        "fixed": ([[1.5, 2.0], [0.0, -1.0]], pa.list_(pa.float64(), 2)),
        "map": ([[("k", 1), ("l", None)], []], pa.map_(pa.string(), pa.int64())),
        "deep": ([{"role": "user", "parts": [{"text": "a", "n": 1}, {"text": None, "n": 2}]}, {"role": None, "parts": None}], deep),
        "dict": (["x", "y"], pa.dictionary(pa.int8(), pa.string())),
        "json": (['{"b": [1, 2.0,\n null], "a": "é"}', "3"], pa.json_()),
        "uuid": ([uuid.UUID(int=2 ** 127 + 5).bytes, uuid.UUID(int=7).bytes], pa.uuid()),
    }
    return pa.table({name: pa.array(values + [None], type=kind) for name, (values, kind) in columns.items()})


def types_rows(table):
    rows = rows_of(table)
    for row in rows:
        if row.get("json") is not None:
            row["json"] = json.loads(row["json"])
    return rows


def chats(count, seed):
    draw = random.Random(seed)
    kind = pa.struct([("role", pa.string()), ("content", pa.large_string()),
                      ("tool_calls", pa.list_(pa.struct([("name", pa.string()), ("arguments", pa.string())])))])
    rows = []
    for number in range(count):
        turns = []
        for turn in range(draw.randrange(5)):
            call = [{"name": draw.choice(WORDS), "arguments": json.dumps({"n": number})}] if draw.random() < 0.2 else None
            turns.append({"role": ("user", "assistant")[turn % 2], "content": draw.choice(WORDS + [None]), "tool_calls": call})
        rows.append({"id": number if draw.random() < 0.9 else None, "messages": turns if draw.random() < 0.95 else None,
                     "source": draw.choice(["web", "book", None])})
    schema = pa.schema([("id", pa.int64()), ("messages", pa.list_(kind)), ("source", pa.dictionary(pa.int32(), pa.string()))])
    return pa.Table.from_pylist(rows, schema=schema)


def write_ipc(table, path, stream, codec=None, batch=None):
    make = ipc.new_stream if stream else ipc.new_file
    with make(path, table.schema, options=ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table, max_chunksize=batch)


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    os.makedirs(OUT)
    expected = {}

    def place(name):
        return os.path.join(OUT, name)

    table = types()
    expected["types.arrow"] = types_rows(table)
    write_ipc(table, place("types.arrow"), stream=False)
    stored = table.drop_columns(["null"])
    pq.write_table(stored, place("types.parquet"))
    expected["types.parquet"] = types_rows(pq.read_table(place("types.parquet")))
    views = pa.table({"v": pa.array(["a long text that is not inline", None, "é"], pa.string_view()),
                      "b": pa.array([b"\xff" * 20, b"ok", None], pa.binary_view()),
                      "l": pa.array([["a", None], None, []], pa.list_view(pa.string()))})
    write_ipc(views, place("views.arrow"), stream=False)
    expected["views.arrow"] = rows_of(views)

    for seed, codec in enumerate(("none", "snappy", "gzip", "zstd", "brotli", "lz4")):
        some = chats(40, seed)
        name = f"chats-{codec}.parquet"
        pq.write_table(some, place(name), compression=codec, row_group_size=17, use_dictionary=seed % 2 == 0,
                       data_page_version="2.0" if seed % 3 == 0 else "1.0")
        expected[name] = rows_of(pq.read_table(place(name)))
    for codec in (None, "lz4", "zstd"):
        for stream in (False, True):
            some = chats(25, 100)
            name = f"chats-{codec}-{'stream' if stream else 'file'}.arrow"
            write_ipc(some, place(name), stream, codec, batch=10)
            expected[name] = rows_of(some)
    for kind, encoding in (("delta", "DELTA_BINARY_PACKED"), ("split", "BYTE_STREAM_SPLIT")):
        numbers = pa.table({"n": pa.array(range(-500, 500, 7), pa.int64()),
                            "t": pa.array([f"text {n % 5}" for n in range(-500, 500, 7)])})
        text = "DELTA_BYTE_ARRAY" if kind == "delta" else "DELTA_LENGTH_BYTE_ARRAY"
        pq.write_table(numbers, place(f"{kind}.parquet"), use_dictionary=False, column_encoding={"n": encoding, "t": text})
        expected[f"{kind}.parquet"] = rows_of(numbers)
    pq.write_table(chats(0, 1), place("no-rows.parquet"))
    expected["no-rows.parquet"] = []

    # As people publish them.
    mixed = datasets.Dataset.from_list(
        [{"messages": [{"role": "user", "content": "hi"},
                       {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": {"a": n, "é": [None, 1.5]}}]}],
          "tools": [{"name": "f"}]} for n in range(3)], on_mixed_types="use_json")
    mixed.to_parquet(place("json.parquet"))
    expected["json.parquet"] = [plain(row) for row in mixed]
    calls = [{"messages": [{"role": "user", "content": "w?"},
                           {"role": "assistant", "content": None, "tool_calls": [
                               {"function": {"name": name, "arguments": arguments}}]}, {"role": "tool", "content": "20", "name": name}],
              "tools": [{"type": "function", "function": {"name": name, "description": about, "parameters": {
                  "type": "object", "properties": {key: {"type": kind} for key in arguments}}}}]}
             for name, about, kind, arguments in (("weather", "of a city", "string", {"city": "Paris"}),
                                                  ("add", None, "integer", {"a": 1, "b": 2}), ("now", "the time", "string", {}))]
    padded = pa.Table.from_pylist(calls)
    pq.write_table(padded, place("calls.parquet"))
    assert padded.to_pylist()[1]["tools"][0]["function"]["parameters"]["properties"]["city"] is None
    expected["calls.parquet"] = rows_of(padded)
    alpaca = datasets.Dataset.from_list([{"instruction": f"q{n}", "input": None, "output": f"a{n}"} for n in range(7)])
    saved = datasets.DatasetDict({"train": alpaca, "test": alpaca.select([6])})
    saved.save_to_disk(place("saved"), num_shards={"train": 3, "test": 1})
    for shard in range(3):
        name = f"saved/train/data-0000{shard}-of-00003.arrow"
        expected[name] = list(datasets.Dataset.from_file(place(name)))

    refused = {"duration.parquet": pa.table({"a": [{"b": datetime.timedelta(1)}]}),
               "union.arrow": pa.table({"u": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])}),
               "twice.arrow": pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])}
    for name, one in refused.items():
        if name.endswith("parquet"):
            pq.write_table(one, place(name))
        else:
            write_ipc(one, place(name), stream=False)
    with open(place("rows.json"), "w", encoding="utf-8") as file:
        json.dump(expected, file, ensure_ascii=False, allow_nan=False)
        file.write("\n")


if __name__ == "__main__":
    main()
