#!/usr/bin/env python3
"""The one-way arrows between rooms, and no circles between modules, read off #include lines.

Usage: arrows_test.py REPOSITORY. Exit 1 on a violation.

A room may include itself and the rooms listed for it. A room that is not listed fails: add it here with its reason.
A module is a .h/.cc pair of one stem. Modules that reach each other through their includes are a circle: nobody can read,
test or move one of them alone. KNOWN_CIRCLES lists those that are left; it may only shrink.
"""
import os
import re
import sys

ARROWS = {
    # What any program could use; it knows nothing of training.
    "common": [],
    "common/version": ["common"],
    "common/files": ["common"],
    "common/jinja": ["common"],
    "common/http": ["common"],
    # What a job is, for all programs; without libtorch.
    "job": ["common"],
    "job/report": ["common", "job"],
    # A model's shape and its config.json's fields; a reader for each family; units, parts and adapters of any model.
    "job/layout/shape": ["common"],
    "job/layout/families": ["common", "job/layout/shape"],
    "job/layout": ["common", "job", "job/layout/families", "job/layout/shape"],
    # The resolved config and what can be computed from it; the table of keys; a file as its values and positions; what each
    # section decides; all of it in order.
    "job/dsconfig/config": ["common", "job"],
    "job/dsconfig/keys": ["common", "job/dsconfig/config"],
    "job/dsconfig/read": ["common", "job", "job/dsconfig/config", "job/dsconfig/keys"],
    "job/dsconfig/sections": ["common", "job", "job/dsconfig/config", "job/dsconfig/keys", "job/dsconfig/read"],
    "job/dsconfig": ["job", "job/dsconfig/config", "job/dsconfig/read", "job/dsconfig/sections"],
    "job/plan": ["common", "job", "job/layout", "job/layout/shape", "job/dsconfig/config"],
    "job/roofline": ["common", "job", "job/layout", "job/dsconfig/config", "job/plan"],
    "job/spec": ["common", "job", "job/layout", "job/dsconfig", "job/dsconfig/config", "job/dsconfig/read"],
    "kube": ["common", "common/files", "common/http"],
    # What ranks show and who hangs; whom worker 0 lets in; what agents say to each other and how it travels; whose link is
    # slow; who decides for the gang; then processes; then what is told of them.
    "agent/diagnose": ["common", "job"],
    "agent/join": ["common", "common/files", "common/http", "job"],
    "agent/wire": ["common", "common/files", "common/http", "agent/diagnose", "agent/join"],
    "agent/links": ["common", "agent/join", "agent/wire"],
    "agent/gang": ["common", "job", "agent/diagnose", "agent/links", "agent/wire"],
    "agent/stacks": ["common"],
    "agent/health": ["common"],
    "agent/ranks": ["common", "job", "agent/stacks", "agent/wire"],
    "agent/status": ["common", "job", "job/report", "common/files", "common/http", "kube", "agent/gang", "agent/wire"],
    "agent": ["common", "common/version", "job", "job/report", "common/files", "common/http", "job/layout", "job/spec",
              "kube", "agent/diagnose", "agent/gang", "agent/health", "agent/join", "agent/links", "agent/ranks",
              "agent/stacks", "agent/status", "agent/wire"],
    # What is seen of a job and judged of its spec; the objects that a job has; what is wanted of them; how that is written;
    # who asks for it, when, and who is told.
    "operator/observe": ["common", "job", "job/report", "job/spec", "kube"],
    "operator/render": ["common", "job", "job/spec", "kube", "operator/observe", "operator/webhook"],
    "operator/decide": ["common", "job", "job/report", "job/spec", "operator/observe", "operator/render"],
    "operator/act": ["common", "job", "job/spec", "kube", "operator/observe", "operator/render", "operator/webhook"],
    "operator/serve": ["common", "common/http", "job", "job/report", "job/spec", "kube", "operator/observe", "operator/render",
                       "operator/decide", "operator/act", "operator/webhook"],
    "operator": ["common", "common/version", "job", "job/spec", "common/http", "kube", "operator/observe", "operator/render",
                 "operator/decide", "operator/act", "operator/serve", "operator/webhook"],
    "operator/webhook": ["common", "common/http", "job/spec", "kube"],
    # Jobs of other tools; what every verb checks of a job before it acts; the verbs; those that are rooms of their own.
    "cli/import": ["common", "common/files", "job", "job/dsconfig/read", "job/spec"],
    "cli/check": ["common", "common/files", "job", "job/layout", "job/dsconfig", "job/dsconfig/keys", "job/plan", "job/spec",
                  "agent/ranks", "engine/data", "engine/data/batches", "engine/data/files", "engine/data/tokenizer",
                  "engine/rows", "engine/weights", "engine/checkpoint", "engine/deepspeed"],
    "cli": ["common", "common/files", "job", "job/layout", "job/dsconfig/keys", "job/dsconfig/read", "job/plan",
            "job/roofline", "job/spec", "cli/check", "cli/import", "engine/data", "engine/data/batches",
            "engine/data/tokenizer", "engine/rows", "engine/weights", "engine/checkpoint", "engine/deepspeed",
            "engine/gguf", "engine/optim"],  # the rates of a schedule, for the plan
    "cli/run": ["common", "common/files", "job", "job/report", "job/dsconfig/config", "job/spec", "agent", "agent/gang",
                "agent/ranks", "cli", "cli/check", "engine/data/files", "engine/weights", "engine/checkpoint"],
    "cli/plot": ["common", "common/files", "job", "job/report", "cli", "cli/check", "cli/run"],
    "cli/tune": ["common", "common/files", "job", "job/dsconfig/keys", "job/dsconfig/read", "job/dsconfig/sections",
                 "job/plan", "job/spec", "agent/ranks", "cli", "cli/check"],
    # Verbs against a cluster; they draw and report with cli's means.
    "cli/cluster": ["common", "job", "job/report", "common/files", "job/dsconfig", "job/spec", "kube", "cli", "cli/plot"],
    "cli/main.cc": ["common", "common/files", "common/version", "cli", "cli/cluster"],  # a file: the table of all verbs
    "tools": ["common", "common/files", "job/layout", "engine/weights/formats", "engine/data/shapes", "engine/data/tokenizer"],
    # Text; its tokens; what a row of a file may look like; conversations as text; files of rows; a data set: rows as
    # tokens; their order and their batches.
    "engine/data/text": ["common", "common/files"],
    "engine/data/tokenizer": ["common", "common/files", "engine/data/text"],
    "engine/data/shapes": ["common", "common/files", "engine/data/text"],
    "engine/data/chat": ["common", "common/files", "common/jinja", "engine/data/shapes", "engine/data/tokenizer"],
    "engine/data/files": ["common", "common/files", "engine/data/shapes", "engine/data/text"],
    "engine/data": ["common", "common/files", "engine/data/text", "engine/data/tokenizer", "engine/data/shapes",
                    "engine/data/chat", "engine/data/files"],
    "engine/data/batches": ["common", "common/files", "engine/data/shapes", "engine/data"],
    "engine/rows": ["common", "job", "job/layout", "job/dsconfig/config", "job/plan", "engine/data", "engine/data/files",
                    "engine/data/tokenizer"],  # a job's rows, for the ranks and for the checks before them
    "engine/data/arrow": ["common", "common/files", "engine/data/files"],  # libdsj_columns.so, which is opened, never linked
    "engine/weights/formats": ["common", "common/files"],  # of files: safetensors, torch's pickles, packed weights
    "engine/weights": ["common", "job", "common/files", "job/layout", "job/layout/shape", "engine/weights/formats"],
    "engine/checkpoint": ["common", "job", "common/files"],
    # A model as a file of llama.cpp's.
    "engine/gguf": ["common", "common/files", "job/layout", "job/layout/shape", "engine/data/chat", "engine/data/text",
                    "engine/data/tokenizer", "engine/weights", "engine/weights/formats"],
    # Another engine's checkpoints, in and out.
    "engine/deepspeed": ["common", "common/files", "engine/weights/formats", "engine/checkpoint"],
    "engine/optim": ["common", "job/dsconfig/config"],
    "engine/kernels": ["engine/optim"],
    "engine/kernels/cuda": ["engine/kernels", "engine/optim"],
    "engine/aio": ["common"],
    "engine/observe": ["common", "common/files", "job/layout", "job/dsconfig/config"],
    "engine/memory": ["common"],
    # The flight log; lanes of a device; how 16-bit elements are read and rounded.
    "engine/comm": ["common", "job", "engine/device", "engine/kernels", "engine/memory"],
    "engine/comm/nccl_shim": [],  # of NCCL's C interface
    # What dsj-train sees of the plugin, and the plugin itself, which dsj-train only ever opens.
    "engine/cuda": ["common", "engine/kernels"],
    "engine/cuda/plugin": ["common", "engine/comm", "engine/cuda", "engine/device", "engine/kernels", "engine/kernels/cuda",
                           "engine/memory"],
    # Declarations of a third party's headers, included by their own names (see the folder's README).
    "engine/comm/gloo_shim/gloo": [],
    "engine/comm/gloo_shim/gloo/common": [],
    "engine/comm/gloo_shim/gloo/rendezvous": [],
    "engine/comm/gloo_shim/gloo/transport": [],
    "engine/device": ["common", "engine/kernels", "engine/memory", "engine/optim"],
    # Parts on disk and in host memory; a unit's parameters, masters and gradients; updates that see more than elements; the
    # state of all units.
    "engine/zero/storage": ["common", "job/layout", "job/dsconfig/config", "job/plan", "engine/aio", "engine/device",
                            "engine/memory", "engine/optim"],
    "engine/zero/flat": ["common", "job/layout", "job/plan", "engine/comm", "engine/device", "engine/memory", "engine/optim",
                         "engine/zero/storage"],
    "engine/zero/methods": ["common", "job/layout", "job/dsconfig/config", "job/plan", "engine/checkpoint", "engine/comm",
                            "engine/memory", "engine/optim", "engine/zero/flat"],
    "engine/zero": ["common", "job/layout", "job/dsconfig/config", "job/plan", "engine/checkpoint", "engine/comm",
                    "engine/device", "engine/weights", "engine/zero/flat", "engine/zero/methods", "engine/zero/storage"],
    # Operations; what every unit has: its micro-batch, projections, norms; what mixes a layer's tokens; the units.
    "engine/models/ops": ["common", "job/layout", "job/layout/shape", "engine/device", "engine/memory", "engine/zero",
                          "engine/zero/flat"],
    "engine/models/unit": ["common", "job/layout", "engine/comm", "engine/device", "engine/models/ops",
                           "engine/zero"],  # attention of cut rows exchanges heads
    "engine/models/mixers": ["common", "job/layout", "job/layout/shape", "engine/device", "engine/models/ops",
                             "engine/models/unit"],
    "engine/models/layers": ["common", "job/layout", "engine/device", "engine/models/mixers", "engine/models/ops",
                             "engine/models/unit"],
    # What a rank starts from; a step and what it measures; what is loaded and saved; a model that answers; the run.
    "engine/train/inputs": ["common", "common/files", "job", "job/report", "job/layout", "job/dsconfig/config",
                            "job/dsconfig/keys", "job/dsconfig", "job/plan", "engine/checkpoint", "engine/comm",
                            "engine/cuda", "engine/data", "engine/data/batches", "engine/data/files", "engine/data/tokenizer",
                            "engine/device", "engine/kernels", "engine/memory", "engine/rows", "engine/weights"],
    "engine/train/step": ["common", "common/files", "job", "job/dsconfig/config", "job/dsconfig/keys", "job/plan",
                          "engine/comm", "engine/data/batches", "engine/data/files", "engine/device", "engine/kernels",
                          "engine/models/ops", "engine/models/unit", "engine/observe", "engine/optim", "engine/train/inputs",
                          "engine/weights", "engine/zero", "engine/zero/flat", "engine/zero/storage"],
    "engine/train/state": ["common", "common/version", "common/files", "job", "job/layout", "job/plan", "engine/checkpoint",
                           "engine/comm", "engine/deepspeed", "engine/kernels", "engine/train/inputs", "engine/train/step",
                           "engine/weights", "engine/zero", "engine/zero/storage"],
    "engine/train/answer": ["common", "common/files", "job", "job/layout", "engine/comm", "engine/data", "engine/device",
                            "engine/data/tokenizer", "engine/memory", "engine/models/unit", "engine/train/inputs",
                            "engine/weights"],
    "engine/train": ["common", "common/files", "job", "job/dsconfig/keys", "job/plan", "engine/checkpoint", "engine/comm",
                     "engine/data/batches", "engine/device", "engine/memory", "engine/observe", "engine/optim",
                     "engine/train/inputs", "engine/train/state", "engine/train/step", "engine/weights", "engine/zero/flat",
                     "engine/zero/storage"],
    "engine": ["common", "common/version", "engine/train", "engine/train/answer"],
}
# Each is the sorted modules that reach each other. A circle that is not here fails, and so does an entry that is gone.
KNOWN_CIRCLES = set()
TOPS = ("common", "job", "kube", "operator", "agent", "engine", "cli", "tools")  # with arrows; circles are sought in tests, too
TORCH_ROOMS = {"engine/cuda/plugin", "engine/memory", "engine/comm", "engine/device", "engine/zero/storage",
               "engine/zero/flat", "engine/zero/methods", "engine/zero", "engine/models/ops", "engine/models/unit",
               "engine/models/mixers", "engine/models/layers", "engine/train/inputs",
               "engine/train/step", "engine/train/state", "engine/train/answer", "engine/train", "engine"}
# What a device queues goes through engine/device/streams.h: who else names streams, events and page-locked memory.
LANES = re.compile(r"VirtualGuardImpl|c10::Event|c10::Stream|cudaEvent|cudaStreamWait|getStreamFromPool|pinned_memory|cudaHostAlloc")
LANES_ARE_MADE_IN = {"engine/device/lanes.cc", "engine/cuda/plugin/plugin.cc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.MULTILINE)


def room_of(path):
    if path in ARROWS:
        return path
    folder = os.path.dirname(path)
    while folder and folder not in ARROWS:
        folder = os.path.dirname(folder)
    return folder


def sources(root, tops):
    """(path from the root, text) of every .h and .cc below the folders `tops`."""
    for top in tops:
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                if name.endswith((".h", ".cc")):
                    path = os.path.relpath(os.path.join(folder, name), root)
                    with open(os.path.join(root, path), encoding="utf-8") as source:
                        yield path, source.read()


def wrong_arrows(root):
    """(problems, number of includes that follow the arrows)."""
    problems, arrows_seen = [], 0
    for path, text in sources(root, TOPS):
        if os.path.dirname(path) not in ARROWS:
            problems.append(f"{path}: its room is not listed in ARROWS")
            continue
        room = room_of(path)
        if room.startswith("engine") and path not in LANES_ARE_MADE_IN:
            problems += [f"{path}: names {word}: ask engine/device/streams.h or host_pages.h"
                         for word in sorted(set(LANES.findall(text)))]
        for quote, target in INCLUDE.findall(text):
            if quote == "<":
                if target.startswith(("ATen", "torch/", "c10/")) and room not in TORCH_ROOMS:
                    problems.append(f"{path}: includes <{target}>, but {room} is torch-free")
                if target.startswith("yaml-cpp") and room not in ("job/spec", "kube", "agent"):
                    problems.append(f"{path}: includes <{target}>, but {room} is yaml-free")
                continue
            other = room_of(target)
            if not other:
                problems.append(f"{path}: includes \"{target}\": not a path from the repository's root")
            elif other != room and other not in ARROWS[room]:
                problems.append(f"{path}: {room} may not include {other} (\"{target}\")")
            else:
                arrows_seen += 1
    return problems, arrows_seen


def modules(root):
    """Module -> the modules that it includes. Includes count from the root, else from the file's own folder."""
    graph = {}
    for path, text in sources(root, TOPS + ("bench", "tests")):
        own = os.path.splitext(path)[0]
        graph.setdefault(own, set())
        for quote, target in INCLUDE.findall(text):
            if not os.path.exists(os.path.join(root, target)):
                target = os.path.normpath(os.path.join(os.path.dirname(path), target))
            other = os.path.splitext(target)[0]
            if quote == '"' and other != own and os.path.exists(os.path.join(root, target)):
                graph[own].add(other)
    return graph


def circles(graph):
    """The sets of modules that reach each other, sorted (Kosaraju's algorithm, without recursion)."""
    def walk(edges, start, seen):
        order, stack = [], [(start, iter(sorted(edges.get(start, ()))))]
        seen.add(start)
        while stack:
            node, rest = stack[-1]
            for other in rest:
                if other not in seen:
                    seen.add(other)
                    stack.append((other, iter(sorted(edges.get(other, ())))))
                    break
            else:
                order.append(node)
                stack.pop()
        return order

    backwards, seen, finished = {}, set(), []
    for node, others in graph.items():
        for other in others:
            backwards.setdefault(other, set()).add(node)
    for node in sorted(graph):
        if node not in seen:
            finished += walk(graph, node, seen)
    seen, found = set(), []
    for node in reversed(finished):
        if node not in seen:
            found.append(tuple(sorted(walk(backwards, node, seen))))
    return sorted(circle for circle in found if len(circle) > 1)


def wrong_circles(graph, known):
    found = circles(graph)
    return [f"a circle of includes: {' <-> '.join(circle)}" for circle in found if circle not in known] + \
           [f"no circle any more, take it out of KNOWN_CIRCLES: {' <-> '.join(circle)}"
            for circle in sorted(known) if circle not in found]


def check_of_circles():
    """The search itself, on graphs whose answer is known."""
    ring = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": {"d", "f"}, "f": {"e"}}
    assert circles(ring) == [("a", "b", "c"), ("e", "f")]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
    assert wrong_circles(ring, {("a", "b", "c"), ("e", "f")}) == []
    assert len(wrong_circles(ring, {("e", "f")})) == 1, "a new circle fails"
    assert len(wrong_circles({"a": set()}, {("a", "b")})) == 1, "an entry that is gone fails"


def main():
    root = sys.argv[1]
    check_of_circles()
    problems, arrows_seen = wrong_arrows(root)
    graph = modules(root)
    round_about = wrong_circles(graph, KNOWN_CIRCLES)
    for problem in problems + round_about:
        print(problem)
    print(f"{arrows_seen} includes follow the arrows, {len(problems)} do not")
    print(f"{len(graph)} modules, {len(KNOWN_CIRCLES)} known circles, {len(round_about)} problems with circles")
    return 1 if problems or round_about or arrows_seen == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
