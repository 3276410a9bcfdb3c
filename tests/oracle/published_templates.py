#!/usr/bin/env python3
"""Published chat templates on drawn conversations: rendered by build/bin/jinja_render, and by transformers.

Usage: published_templates.py [--conversations N] [--seed N] [--render PROGRAM] [--templates DIRECTORY] [NAME...]
Without --templates, the templates that lie in a pinned source package are fetched (76 MB) into the cache; they are other
people's text and never committed. Each conversation is rendered with and without the generation prompt. A template counts
as equal when every text, every refusal and every {% generation %} span is that of transformers. Exit 1 where one is not.
"""
# python: tests/oracle/model_venv.sh
import argparse
import datetime
import hashlib
import json
import os
import random
import subprocess
import sys
import tarfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PACKAGE, VERSION = "llama_cpp_python", "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
NOW = 1764081000  # strftime_now's time in both

WORDS = ["weather", "Paris", "the", "a", "1+1=2", "Grüße", "世界", "\U0001f600", "naïve", "<b>&amp;</b>", "it's", "\"quoted\"",
         "\\n", "{{ x }}", "{% if %}", "line\nbreak", "\ttab", "  ", "é́", "ελληνικός", "שלום", "0.1", "None", "True", "`code`",
         "<think>", "</think>", "<tool_call>", "[INST]", "\u200b", "\u00a0", "end.", "?", "--", "'", "$x^2$", "a/b", "C:\\dir"]


def text(r, empty=0.08):
    if r.random() < empty:
        return r.choice(["", " ", "\n", "  \n\n "])
    made = r.choice(["", "", "", " ", "\n"]) + " ".join(r.choice(WORDS) for _ in range(r.randint(1, 12)))
    return made + r.choice(["", "", "", " ", "\n\n"])


def value(r, depth=0):
    kinds = ["text", "int", "float", "bool", "none"] + (["list", "dict"] if depth < 2 else [])
    kind = r.choice(kinds)
    if kind == "text":
        return text(r)
    if kind == "int":
        return r.choice([0, 1, -7, 42, 2**53, 10**15])
    if kind == "float":
        return r.choice([0.5, 1.0, -2.25, 1e-7, 1e22, 3.141592653589793, 100.0])
    if kind == "bool":
        return r.random() < 0.5
    if kind == "none":
        return None
    if kind == "list":
        return [value(r, depth + 1) for _ in range(r.randint(0, 3))]
    return {r.choice(["k", "name", "b c", "Ünï", "z"]) + str(i): value(r, depth + 1) for i in range(r.randint(0, 3))}


def schema(r, depth=0):
    kind = r.choice(["string", "integer", "number", "boolean", "array", "object"] if depth < 2 else ["string", "integer"])
    made = {"type": kind}
    if r.random() < 0.7:
        made["description"] = text(r, 0)
    if kind == "string" and r.random() < 0.3:
        made["enum"] = [r.choice(WORDS) for _ in range(r.randint(1, 3))]
    if kind == "array":
        made["items"] = schema(r, depth + 1)
    if kind == "object":
        made["properties"] = {f"p{i}": schema(r, depth + 1) for i in range(r.randint(1, 3))}
        if r.random() < 0.5:
            made["required"] = r.sample(sorted(made["properties"]), 1)
    if r.random() < 0.15:
        made["default"] = value(r, 2)
    return made


def tool(r, i):
    parameters = {"type": "object", "properties": {n: schema(r) for n in r.sample(["city", "unit", "days", "x_y"], r.randint(0, 3))}}
    if parameters["properties"] and r.random() < 0.8:
        parameters["required"] = r.sample(sorted(parameters["properties"]), r.randint(1, len(parameters["properties"])))
    function = {"name": f"{r.choice(['get_weather', 'search', 'run'])}_{i}", "description": text(r, 0.02), "parameters": parameters}
    if r.random() < 0.1:
        function["return"] = schema(r, 1)
    if r.random() < 0.1:
        function["strict"] = r.random() < 0.5
    return {"type": "function", "function": function}


def call(r, tools, i):
    name = r.choice(tools)["function"]["name"] if tools else "search_0"
    arguments = {n: value(r) for n in r.sample(["city", "unit", "days", "x_y"], r.randint(0, 3))}
    if r.random() < 0.25:
        arguments = json.dumps(arguments, ensure_ascii=r.random() < 0.5)
    return {"id": r.choice([f"call_{i}", "abcdefghi", "000000001"]), "type": "function", "function": {"name": name, "arguments": arguments}}


def content(r):
    if r.random() < 0.12:
        return [{"type": "text", "text": text(r)} for _ in range(r.randint(1, 2))]
    return text(r)


def conversation(r):
    tools = [tool(r, i) for i in range(r.randint(1, 3))] if r.random() < 0.4 else None
    messages = []
    if r.random() < 0.45:
        messages.append({"role": r.choice(["system", "system", "system", "developer"]), "content": content(r)})
    for _ in range(r.choice([1, 1, 2, 3, 5])):
        messages.append({"role": "user", "content": content(r)})
        for step in range(2):
            if not (tools and r.random() < 0.5) and r.random() < 0.93:
                break
            calls = [call(r, tools, i) for i in range(r.choice([1, 1, 2]))]
            turn = {"role": "assistant", "content": r.choice(["", text(r), None]), "tool_calls": calls}
            if turn["content"] is None and r.random() < 0.5:
                del turn["content"]
            if r.random() < 0.3:
                turn["reasoning_content"] = text(r)
            messages.append(turn)
            for one in calls:
                answer = text(r) if r.random() < 0.7 else json.dumps(value(r))
                messages.append({"role": "tool", "tool_call_id": one["id"], "name": one["function"]["name"], "content": answer})
        answer = {"role": "assistant", "content": content(r)}
        if r.random() < 0.25:
            answer["content"] = "<think>" + text(r) + "</think>" + text(r)
        if r.random() < 0.2:
            answer[r.choice(["reasoning_content", "thinking", "reasoning"])] = text(r)
        messages.append(answer)
    if r.random() < 0.15:
        messages.pop()
    if r.random() < 0.04:
        messages.insert(r.randint(0, len(messages)), {"role": r.choice(["user", "assistant", "system", "ipython"]), "content": text(r)})
    more = {}
    if r.random() < 0.2:
        more["enable_thinking"] = r.random() < 0.5
    return messages or [{"role": "user", "content": "x"}], tools, more


def fetched_templates():
    cache = os.path.join(os.environ.get("DSJ_CACHE") or os.path.expanduser("~/.cache/dsj"), f"templates-{VERSION}")
    if not os.path.isdir(cache):
        os.makedirs(cache + ".new", exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", cache + ".new",
                        f"{PACKAGE}=={VERSION}"], check=True)
        package = os.path.join(cache + ".new", f"{PACKAGE}-{VERSION}.tar.gz")
        with open(package, "rb") as file:
            found = hashlib.sha256(file.read()).hexdigest()
        if found != SHA256:
            sys.exit(f"{package}: SHA-256 is {found}, expected {SHA256}")
        with tarfile.open(package) as archive:
            for member in archive.getmembers():
                if "/models/templates/" in member.name and member.name.endswith(".jinja"):
                    with open(os.path.join(cache + ".new", os.path.basename(member.name)), "wb") as file:
                        file.write(archive.extractfile(member).read())
        os.remove(package)
        os.rename(cache + ".new", cache)
    return cache


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--render", default=os.path.join(ROOT, "build", "bin", "jinja_render"))
    parser.add_argument("--templates")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    from transformers.utils import chat_template_utils as hf
    hf.datetime = FixedDate
    folder = options.templates or fetched_templates()
    names = [n for n in sorted(os.listdir(folder)) if n.endswith(".jinja") and (not options.names or n[:-6] in options.names)]
    equal = texts = refusals = 0
    for name in names:
        r = random.Random(f"{options.seed} {name}")
        path = os.path.join(folder, name)
        with open(path, encoding="utf-8", newline="") as file:
            template = file.read()
        tokens = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
        lines, expected = [], []
        for i in range(options.conversations):
            messages, tools, more = conversation(r)
            messages = hf._alias_reasoning_fields(hf._normalize_chat_messages(messages))
            context = {**tokens, **more, "messages": messages, "tools": tools, "documents": None, "add_generation_prompt": i % 2 == 0}
            lines.append(json.dumps({"template": path, "now": NOW, "context": context}, ensure_ascii=False))
            rest = {k: v for k, v in context.items() if k not in ("messages", "tools", "documents", "add_generation_prompt")}
            try:
                made, spans = hf.render_jinja_template(
                    [messages], tools=tools, documents=None, chat_template=template, add_generation_prompt=i % 2 == 0,
                    return_assistant_tokens_mask="generation" in template, **rest)
                spans = [[len(made[0][:a].encode()), len(made[0][:b].encode())] for a, b in (spans[0] if spans else [])]
                expected.append((made[0], spans))
            except Exception as error:
                expected.append((None, f"{type(error).__name__}: {error}"))
        run = subprocess.run([options.render], input="\n".join(lines) + "\n", capture_output=True, text=True)
        got = [json.loads(line) for line in run.stdout.split("\n") if line]
        if len(got) != len(lines):
            got += [{"error": f"the program ended with {run.returncode}: {run.stderr[-300:]}"}] * (len(lines) - len(got))
        wrong = []
        for line, (want, spans), have in zip(lines, expected, got):
            if want is None:
                if "error" not in have:
                    wrong.append((line, spans, have["text"]))
            elif have.get("text") != want or (have["generated"] or []) != spans:
                wrong.append((line, want if have.get("text") != want else spans, have.get("error") or (have["text"] if have["text"] != want else have["generated"])))
        refused = sum(want is None for want, _ in expected)
        texts, refusals, equal = texts + len(expected) - refused, refusals + refused, equal + (not wrong)
        print(f"{'equal' if not wrong else 'DIFFERS in ' + str(len(wrong))}: {name}: {len(expected) - refused} texts, {refused} refusals")
        for line, want, have in wrong[:1]:
            a, b = str(want), str(have)
            at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            print(f"    {line[:300]}\n    expected ...{a[max(0, at - 60):at + 100]!r}\n    found    ...{b[max(0, at - 60):at + 100]!r}")
    print(f"{equal} of {len(names)} templates equal: {texts} texts and {refusals} refusals on {options.conversations} conversations each")
    sys.exit(0 if equal == len(names) else 1)


if __name__ == "__main__":
    main()
