#!/usr/bin/env python3
"""The one-way arrows between rooms, read off #include lines. Usage: arrows_test.py REPOSITORY. Exit 1 on a violation.

A room may include itself and the rooms listed for it. A room that is not listed fails: add it here with its reason.
"""
import os
import re
import sys

ARROWS = {
    "common": [],
    "common/files": ["common"],
    "common/report": ["common"],
    "common/http": ["common"],
    "common/layout": ["common"],
    "common/dsconfig": ["common", "common/layout"],
    "common/jobspec": ["common", "common/layout", "common/dsconfig"],
    "common/jobimport": ["common", "common/files", "common/dsconfig", "common/jobspec"],
    "kube": ["common", "common/files"],
    "agent": ["common", "common/report", "common/files", "common/http", "common/layout", "common/dsconfig",
              "common/jobspec", "kube"],
    "operator": ["common", "common/report", "common/http", "common/layout", "common/dsconfig", "common/jobspec", "kube",
                 "operator/webhook"],
    "operator/webhook": ["common", "common/http", "common/dsconfig", "common/jobspec", "kube"],
    "cli": ["common", "common/report", "common/files", "common/layout", "common/dsconfig", "common/jobspec",
            "common/jobimport", "agent", "engine/weights"],
    # Verbs against a cluster; they draw and report with cli's means.
    "cli/cluster": ["common", "common/report", "common/files", "common/dsconfig", "common/jobspec", "kube", "cli"],
    "cli/main.cc": ["common", "cli", "cli/cluster"],  # a file: the table of all verbs
    "tools": ["common", "common/files", "common/layout", "engine/weights", "engine/data"],
    "engine/data": ["common", "common/files"],
    "engine/weights": ["common", "common/files", "common/layout"],
    "engine/checkpoint": ["common", "common/files"],
    "engine/optim": ["common", "common/dsconfig"],
    "engine/kernels": [],
    "engine/aio": ["common"],
    "engine/observe": ["common", "common/files", "common/layout", "common/dsconfig"],
    "engine/memory": ["common"],
    "engine/comm": ["common"],
    # Declarations of a third party's headers, included by their own names (see the folder's README).
    "engine/comm/gloo_shim/gloo": [],
    "engine/comm/gloo_shim/gloo/common": [],
    "engine/comm/gloo_shim/gloo/rendezvous": [],
    "engine/comm/gloo_shim/gloo/transport": [],
    "engine/zero": ["common", "common/layout", "common/dsconfig", "engine/memory", "engine/comm", "engine/weights",
                    "engine/checkpoint", "engine/optim", "engine/kernels", "engine/aio", "common/files"],
    "engine/models": ["common", "common/layout", "engine/memory", "engine/kernels", "engine/zero"],
    "engine/train": ["common", "common/report", "common/files", "common/layout", "common/dsconfig", "engine/data",
                     "engine/weights", "engine/checkpoint", "engine/optim", "engine/kernels", "engine/memory", "engine/comm",
                     "engine/zero", "engine/models", "engine/observe"],
    "engine": ["common", "engine/train"],
}
TORCH_ROOMS = {"engine/memory", "engine/comm", "engine/zero", "engine/models", "engine/train", "engine"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.MULTILINE)


def room_of(path):
    if path in ARROWS:
        return path
    folder = os.path.dirname(path)
    while folder and folder not in ARROWS:
        folder = os.path.dirname(folder)
    return folder


def main():
    root = sys.argv[1]
    problems, arrows_seen = [], 0
    for top in ("common", "kube", "operator", "agent", "engine", "cli", "tools"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                if not name.endswith((".h", ".cc")):
                    continue
                path = os.path.relpath(os.path.join(folder, name), root)
                if os.path.dirname(path) not in ARROWS:
                    problems.append(f"{path}: its room is not listed in ARROWS")
                    continue
                room = room_of(path)
                with open(os.path.join(root, path), encoding="utf-8") as source:
                    text = source.read()
                for quote, target in INCLUDE.findall(text):
                    if quote == "<":
                        if target.startswith(("ATen", "torch/", "c10/")) and room not in TORCH_ROOMS:
                            problems.append(f"{path}: includes <{target}>, but {room} is torch-free")
                        if target.startswith("cpprest") and not room.startswith("agent"):
                            problems.append(f"{path}: includes <{target}>, but {room} is cpprest-free")
                        if target.startswith("yaml-cpp") and room not in ("common/jobspec", "kube", "agent", "cli"):
                            problems.append(f"{path}: includes <{target}>, but {room} is yaml-free")
                        continue
                    other = room_of(target)
                    if not other:
                        problems.append(f"{path}: includes \"{target}\": not a path from the repository's root")
                    elif other != room and other not in ARROWS[room]:
                        problems.append(f"{path}: {room} may not include {other} (\"{target}\")")
                    else:
                        arrows_seen += 1
    for problem in problems:
        print(problem)
    print(f"{arrows_seen} includes follow the arrows, {len(problems)} do not")
    return 1 if problems or arrows_seen == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
