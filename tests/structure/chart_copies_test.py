#!/usr/bin/env python3
"""The chart is whole by itself, as Flux, Argo CD and `helm package` take it out of the repository: no link leads out of it, and its
copies of the resources are those of crds/. Usage: chart_copies_test.py REPOSITORY. Exit 1 on a problem; `make docs` copies.
"""
import os
import sys


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def main():
    root = sys.argv[1]
    crds, chart = os.path.join(root, "crds"), os.path.join(root, "charts/deepspeedjob")
    copies = os.path.join(chart, "files/crds")
    links = [os.path.join(folder, name) for folder, folders, names in os.walk(chart) for name in folders + names
             if os.path.islink(os.path.join(folder, name))]
    problems = [f"{path} is a link: Flux leaves it out" for path in links]
    if sorted(os.listdir(crds)) != sorted(os.listdir(copies)):
        problems.append(f"{copies} has {sorted(os.listdir(copies))}, crds/ has {sorted(os.listdir(crds))}")
    else:
        problems += [f"{copies}/{name} is not crds/{name}: cp crds/*.yaml {copies}/" for name in os.listdir(crds)
                     if read(os.path.join(crds, name)) != read(os.path.join(copies, name))]
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(os.listdir(copies))} copies in the chart, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
