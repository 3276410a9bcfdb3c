#!/usr/bin/env python3
"""Every row of docs/security.md's attack list names tests that exist. Usage: attack_list_test.py REPOSITORY. Exit 1 on a problem.

A test is named as `Suite.Case` (a GoogleTest) or `script.py: words` (a string in that script of tests/).
"""
import os
import re
import sys

LEAST = 40


def texts(root):
    for folder, _, names in os.walk(os.path.join(root, "tests")):
        for name in names:
            if name.endswith(("_test.cc", "_check.py")):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    yield name, file.read()


def main():
    root = sys.argv[1]
    cases, scripts = set(), {}
    for name, text in texts(root):
        scripts[name] = text
        cases |= {f"{suite}.{case}" for suite, case in re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", text, re.MULTILINE)}
    with open(os.path.join(root, "docs/security.md"), encoding="utf-8") as file:
        page = file.read()
    rows = [line for line in page.partition("## Attacks")[2].splitlines() if line.startswith("| ") and not line.startswith("| attack |")]
    problems = []
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        named = re.findall(r"`([^`]+)`", cells[-1]) if len(cells) == 3 else []
        if not named:
            problems.append(f"{row}: expected attack, answer and a test")
        for test in named:
            script, _, words = test.partition(": ")
            if not (words and words in scripts.get(script, "")) and test not in cases:
                problems.append(f"{row}: there is no test {test}")
    for problem in problems:
        print(problem)
    print(f"{len(rows)} attacks, {len(cases)} tests, {len(problems)} problems")
    return 1 if problems or len(rows) < LEAST else 0


if __name__ == "__main__":
    sys.exit(main())
