#!/usr/bin/env python3
"""Every public header of some rooms has its own test, or names the test that covers it.

Usage: tested_test.py REPOSITORY. Exit 1 on a problem.

A header's own test is tests/{room}/{name}_test.cc, and it includes the header. Else the header says in one line whose
test covers it: "// Tested by: tests/...", and the file named there is a test (*_test.cc, *_test.py or *_check.py) that
exists. It first checks itself with planted headers.
"""
import os
import re
import sys
import tempfile

ROOMS = ("engine/zero", "engine/optim", "engine/gguf", "agent")  # with the folders in them
LINE = re.compile(r"^// Tested by: (.*)$", re.MULTILINE)
ENDS = ("_test.cc", "_test.py", "_check.py")


def headers(root, room):
    for folder, _, names in os.walk(os.path.join(root, room)):
        for name in names:
            if name.endswith(".h"):
                yield os.path.relpath(os.path.join(folder, name), root)


def problem_of(root, header):
    """What is wrong with a header; None: it is tested."""
    with open(os.path.join(root, header), encoding="utf-8") as file:
        named = LINE.findall(file.read())
    own = f"tests/{header[:-2]}_test.cc"
    if os.path.exists(os.path.join(root, own)):
        with open(os.path.join(root, own), encoding="utf-8") as file:
            if f'#include "{header}"' not in file.read():
                return f"its test {own} does not include it"
        return f"has {own}; \"Tested by\" is for headers without" if named else None
    if not named:
        return f"has neither {own} nor a line \"// Tested by: tests/...\""
    for line in named:
        for test in re.split(r",\s*", line.rstrip(".")):
            if not test.startswith("tests/") or not test.endswith(ENDS):
                return f"\"Tested by: {test}\" is not the path of a test"
            if not os.path.isfile(os.path.join(root, test)):
                return f"\"Tested by: {test}\" is not there"
    return None


def check(root, rooms):
    """[(header, problem or None)] of all rooms."""
    return [(header, problem_of(root, header)) for room in rooms for header in sorted(headers(root, room))]


def self_check():
    """Finds every planted problem, and accepts what is right."""
    test, line = "tests/", "// Tested by: tests/"
    planted = {
        "room/own.h": "",
        test + "room/own_test.cc": '#include "room/own.h"\n',
        "room/deep/own.h": "",
        test + "room/deep/own_test.cc": '#include "room/deep/own.h"\n',
        "room/other.h": f"// Words.\n{line}room/own_test.cc, {test}run/whole_check.py.\n",
        test + "run/whole_check.py": "",
        "room/bad_none.h": "// Words.\n",
        "room/bad_gone.h": line + "room/gone_test.cc\n",
        "room/bad_kind.h": "// Tested by: room/own.h\n",
        "room/bad_one_of_two.h": f"{line}room/own_test.cc, {test}room/gone_test.cc\n",
        "room/bad_both.h": line + "room/own_test.cc\n",
        test + "room/bad_both_test.cc": '#include "room/bad_both.h"\n',
        "room/bad_stranger.h": "",
        test + "room/bad_stranger_test.cc": '#include "room/own.h"\n',
    }
    with tempfile.TemporaryDirectory(prefix="dsj-tested-") as root:
        for path, text in planted.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        wrong = [(header, problem) for header, problem in check(root, ["room"])
                 if bool(problem) != os.path.basename(header).startswith("bad_")]
    for header, problem in wrong:
        print(f"the check itself is wrong: {header}: {problem or 'no problem found'}")
    return not wrong


def main():
    if not self_check():
        return 1
    found = check(sys.argv[1], ROOMS)
    problems = [(header, problem) for header, problem in found if problem]
    for header, problem in problems:
        print(f"{header}: {problem}")
    print(f"{len(found)} headers, {len(problems)} without a test")
    return 1 if problems or not found else 0


if __name__ == "__main__":
    sys.exit(main())
