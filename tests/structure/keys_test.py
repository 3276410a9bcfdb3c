#!/usr/bin/env python3
"""Every test that the ds_config key table names exists. Usage: keys_test.py SOURCE BUILD. Exit 1 when one does not.

"PROGRAM:Suite.Test" is looked up by `PROGRAM --gtest_list_tests`, a bare name among CTest's tests. Programs that this
build leaves out (no libtorch) are looked up by their name in tests/CMakeLists.txt only, and that is said.
"""
import json
import os
import re
import subprocess
import sys


def listed(program):
    """Suite.Test of every test, without the prefix and suffix of parameters; nothing when it is not built."""
    names, suite = set(), ""
    if not os.path.exists(program):
        return names
    for line in subprocess.check_output([program, "--gtest_list_tests"], text=True).splitlines():
        word = line.split("#")[0].strip()
        if not line.startswith(" "):
            suite = word
            continue
        parts = (suite + word).split("/")
        # "All/Stages.Equal/0", "Stages.Equal", "Typed/0.Equal"
        names.add(next(part for part in parts if "." in part and not part[0].isdigit()))
    return names


def main():
    source, build = sys.argv[1], sys.argv[2]
    table = json.loads(subprocess.check_output([os.path.join(build, "bin", "dsj"), "validate", "--keys", "json"]))
    ctest = {t["name"] for t in json.loads(subprocess.check_output(["ctest", "--show-only=json-v1"], cwd=build))["tests"]}
    with open(os.path.join(source, "tests", "CMakeLists.txt"), encoding="utf-8") as file:
        known = set(re.findall(r"(?:dsj_test\(|add_test\(NAME )(\w+)", file.read()))
    found, problems, checked, unchecked = {}, [], 0, {}
    for key in table["keys"]:
        if key["state"] == "works" and not key["tests"]:
            problems.append(f"{key['path']}: works, and names no test")
        for test in key["tests"]:
            program, _, name = test.partition(":")
            if program not in known:
                problems.append(f"{key['path']}: there is no test program or script \"{program}\"")
            elif program not in ctest:
                unchecked[program] = unchecked.get(program, 0) + 1
            elif not name:
                checked += 1
            else:
                if program not in found:
                    found[program] = listed(os.path.join(build, "bin", program))
                checked += 1
                if name not in found[program]:
                    why = f"has no test {name}" if found[program] else "is not built"
                    problems.append(f"{key['path']}: {program} {why}")
    for problem in problems:
        print(problem)
    for program, count in sorted(unchecked.items()):
        print(f"{program} is not part of this build: {count} names NOT CHECKED")
    print(", ".join(f"{count} {state}" for state, count in table["counts"].items()))
    print(f"{checked} test names exist, {len(problems)} problems")
    return 1 if problems or checked == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
