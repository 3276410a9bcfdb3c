#!/usr/bin/env python3
"""Shows what a build costs: compiler-seconds by kind, by room and by compile, and what each header adds.

Usage: build_cost.py BUILD_DIRECTORY [--top N] [--headers theirs|own|std|all] [--targets NAME...]

Seconds come from Ninja's log: the duration of the newest run of each command. They are compiler time only if the compiler
cache was empty and no other work used the cores.
--headers compiles, for each header that a source includes, a file that includes only this header, with the flags of a
file that reads it, and counts the files that read it. It takes a second or two per header: minutes in all. For own and
std it measures only headers that at least 50 files read.
  theirs  headers of other projects (the default)    own  this repository's    std  the C++ standard library's
--targets counts only what these targets need: dsj dsj-agent dsj-train dsj-make-quickstart is what `make run` builds.
"""
import argparse
import collections
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile

READ_AT_LEAST = 50  # minimum number of files, for headers of ours or of the standard library
KNOWN_VERSIONS = (5, 6, 7)  # they differ in units of mtime and in the hash, neither of which is read here


class Bad(Exception):
    """The user's input cannot be used; the text says why and what to do."""


Command = collections.namedtuple("Command", "outputs seconds")
Unit = collections.namedtuple("Unit", "source arguments directory")


def read_log(lines):
    """The newest run of each command in a .ninja_log. A command with several outputs has a line for each."""
    lines = iter(lines)
    found = re.fullmatch(r"# ninja log v(\d+)", next(lines, "").strip())
    if not found or int(found[1]) not in KNOWN_VERSIONS:
        raise Bad(f".ninja_log: its first line is not \"# ninja log vN\" with N one of {KNOWN_VERSIONS}")
    newest = {}
    for line in lines:
        fields = line.rstrip("\n").split("\t")
        if len(fields) != 5:
            continue  # a last line that is still being written
        start, end, _, output, signature = fields
        newest[output] = (int(start), int(end), signature)
    runs = collections.defaultdict(list)
    for output, run in newest.items():
        runs[run].append(output)
    return [Command(sorted(outputs), (end - start) / 1000) for (start, end, _), outputs in runs.items()]


def sources_of(source):
    """Sources that a unity build compiles as one; any other source alone."""
    if "/Unity/unity_" not in source or not os.path.exists(source):
        return [source]
    with open(source, encoding="utf-8") as file:
        return re.findall(r'^#include "(/.*)"', file.read(), re.MULTILINE) or [source]


def kind_of(output):
    if output.endswith(".gch") or output.endswith(".pch"):
        return "precompiled header"
    if output.endswith(".o"):
        return "compile"
    if output.endswith(".a"):
        return "archive"
    if os.path.dirname(output) == "bin" or re.search(r"\.so[.0-9]*$", output):
        return "link"
    return "other"


class Build:
    """A finished CMake and Ninja build."""

    def __init__(self, directory, targets=()):
        self.directory = os.path.abspath(directory)
        try:
            with open(self._path(".ninja_log"), encoding="utf-8") as file:
                commands = read_log(file)
            with open(self._path("compile_commands.json"), encoding="utf-8") as file:
                entries = json.load(file)
            with open(self._path("CMakeCache.txt"), encoding="utf-8") as file:
                self.source = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", file.read(), re.MULTILINE)[1]
        except FileNotFoundError as error:
            raise Bad(f"{error.filename}: there is no such file; name the directory of a Ninja build") from None
        self.units = {}  # by object
        for entry in entries:
            arguments = shlex.split(entry["command"])
            self.units[arguments[arguments.index("-o") + 1]] = Unit(entry["file"], arguments, entry["directory"])
        # Targets that only an earlier configuration built stay in the log.
        known = self._ninja("inputs", *targets) if targets else self._ninja("targets", "all")
        known = {line if targets else line.rsplit(":", 1)[0] for line in known}
        known.update("bin/" + target for target in targets)  # `inputs` leaves out the target itself
        self.commands = [c for c in commands if known.intersection(c.outputs)]
        self.rooms = self._rooms_of_targets()

    def _ninja(self, *tool):
        done = subprocess.run(["ninja", "-C", self.directory, "-t", *tool], text=True, capture_output=True, check=False)
        if done.returncode != 0:
            raise Bad(f"ninja -t {' '.join(tool)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout.splitlines()

    def _path(self, name):
        return os.path.join(self.directory, name)

    def room_of_source(self, path):
        path = sources_of(path)[0]
        relative = os.path.relpath(path, self.source)
        inside = not relative.startswith("..") and not path.startswith(self.directory + os.sep)
        return os.path.dirname(relative) if inside else "(made by CMake)"

    def _rooms_of_targets(self):
        votes = collections.defaultdict(collections.Counter)
        for output, unit in self.units.items():
            target = re.search(r"CMakeFiles/([^/]+)\.dir/", output)
            if target:
                votes[target[1]][self.room_of_source(unit.source)] += 1
        return {target: rooms.most_common(1)[0][0] for target, rooms in votes.items()}

    def room(self, command):
        output = command.outputs[0]
        if output in self.units:
            return self.room_of_source(self.units[output].source)
        for output in command.outputs:
            target = re.sub(r"^lib|\.(a|so)$", "", os.path.basename(output))
            if target in self.rooms:
                return self.rooms[target]
        return "(made by CMake)"

    def shown(self, output):
        """A compile by its source: "engine/zero: flat.cc and 5 more"."""
        if output not in self.units:
            return output
        first, *others = (os.path.relpath(path, self.source) for path in sources_of(self.units[output].source))
        return f"{os.path.dirname(first)}: {os.path.basename(first)} and {len(others)} more" if others else first

    def included(self):
        """Object -> the files that its compiler read, absolute; without what came out of a precompiled header."""
        files, found = None, {}
        for line in self._ninja("deps"):
            if line.startswith("    "):
                files.add(os.path.normpath(os.path.join(self.directory, line.strip())))
            elif line:
                files = found.setdefault(line.split(": #deps")[0], set())
        return {output: files for output, files in found.items() if output in self.units}

    def precompiled(self, output):
        """The output path of the precompiled header of this object's source, or None."""
        arguments = self.units[output].arguments
        for flag, value in zip(arguments, arguments[1:]):
            if flag == "-include" and value.endswith("cmake_pch.hxx") and not output.endswith(".gch"):
                return os.path.relpath(value, self.directory) + ".gch"
        return None


def table(title, heads, rows):
    """Prints rows of strings; the first column to the left, the others to the right."""
    if not rows:
        return
    rows = [heads] + rows
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    print(f"\n{title}")
    for row in rows:
        rest = "".join("  " + cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))
        print("  " + row[0].ljust(widths[0]) + rest)


def by_group(commands, group):
    """[name, compiles, compiler seconds, all seconds] of each group, the most expensive first."""
    files, compiling, total = collections.Counter(), collections.Counter(), collections.Counter()
    for command in commands:
        name, kind = group(command), kind_of(command.outputs[0])
        total[name] += command.seconds
        if kind in ("compile", "precompiled header"):
            files[name] += 1
            compiling[name] += command.seconds
    return [[name, str(files[name]), f"{compiling[name]:.1f}", f"{seconds:.1f}"]
            for name, seconds in total.most_common()]


def print_costs(build, top):
    commands = build.commands
    compiling = [c for c in commands if kind_of(c.outputs[0]) in ("compile", "precompiled header")]
    total = sum(c.seconds for c in compiling)
    print(f"{total:.0f} compiler-seconds in {len(compiling)} compiles; "
          f"{sum(c.seconds for c in commands):.0f} s with everything else that was run")
    quick = sum(c.seconds < 0.1 for c in compiling)
    if compiling and quick > len(compiling) / 5:
        print(f"{quick} compiles took less than 0.1 s: the compiler cache answered, so a fresh machine pays more")

    kinds = collections.defaultdict(list)
    for command in commands:
        kinds[kind_of(command.outputs[0])].append(command.seconds)
    table("by kind", ["kind", "commands", "seconds"],
          [[kind, str(len(s)), f"{sum(s):.1f}"] for kind, s in sorted(kinds.items(), key=lambda item: -sum(item[1]))])
    heads = ["compiles", "compiler s", "all s"]
    table("by top folder", ["folder"] + heads, by_group(commands, lambda c: build.room(c).split("/")[0]))
    rooms = by_group(commands, build.room)
    table(f"by room, the {min(top, len(rooms))} dearest of {len(rooms)}", ["room"] + heads, rooms[:top])
    dear = sorted(compiling, key=lambda c: -c.seconds)[:top]
    table(f"compiles, the {len(dear)} dearest", ["source", "seconds"],
          [[build.shown(c.outputs[0]), f"{c.seconds:.1f}"] for c in dear])


def named_headers(source):
    """Header -> its spelling in an #include, for all sources that git tracks."""
    paths = subprocess.check_output(["git", "-C", source, "ls-files", "*.h", "*.cc"], text=True).splitlines()
    names = set()
    for path in paths:
        with open(os.path.join(source, path), encoding="utf-8") as file:
            names.update(re.findall(r'^#include ([<"][^>"]+[>"])', file.read(), re.MULTILINE))
    return names


def which(path, source):
    """own, std or theirs; None for headers of C and of the kernel, and those in the same folders: they cost nothing."""
    if path.startswith(source + os.sep):
        return "own"
    if re.match(r"/usr/include/c\+\+/\d+/[^/]+$", path):
        return "std"
    if re.match(r"/usr/lib/gcc/|/usr/include/((c\+\+|linux|sys|netinet|arpa|[^/]+-linux-gnu)/|[a-z0-9]+\.h$)", path):
        return None
    return "theirs"


def resolve(name, units, included):
    """(path, an object that reads it or None): where the compiler finds `name`, from its dependencies and its -I."""
    bare = name[1:-1]
    for output, files in included.items():
        for path in files:
            if path.endswith("/" + bare):
                return path, output
    for output, unit in units.items():
        for flag, value in zip(unit.arguments, unit.arguments[1:] + [""]):
            folder = value if flag in ("-isystem", "-I") else flag[2:] if flag.startswith("-I") else None
            if folder and os.path.exists(os.path.join(folder, bare)):
                return os.path.normpath(os.path.join(folder, bare)), output
    return None, None


def compile_seconds(text, unit):
    """The compiler's CPU seconds for `text`, with the unit's flags but no precompiled header; None if it fails."""
    arguments, kept = iter(unit.arguments), []
    for argument in arguments:
        if argument in ("-o", "-include"):
            next(arguments)
        elif argument not in ("-c", "-Winvalid-pch", unit.source):
            kept.append(argument)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "only.cc")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(kept + ["-c", path, "-o", os.path.join(folder, "only.o")], cwd=unit.directory,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        return None
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def print_headers(build, wanted, top):
    included = build.included()
    pch = {output: build.precompiled(output) for output in included}
    plain = {output: files for output, files in included.items() if not pch[output]}
    rows, failed, empty = [], [], None
    for name in sorted(named_headers(build.source)):
        path, output = resolve(name, build.units, plain)
        if path is None:
            path, output = resolve(name, build.units, included)
        if path is None or which(path, build.source) not in wanted or output not in build.units:
            continue
        reads = sum(path in files for files in plain.values())
        late = sum(path in files and path not in included.get(pch[o], ()) for o, files in included.items() if pch[o])
        if empty is None:
            empty = compile_seconds("", build.units[output]) or 0
        if which(path, build.source) != "theirs" and reads + late < READ_AT_LEAST:
            continue
        seconds = compile_seconds(f"#include {name}\n", build.units[output])
        if seconds is None:
            failed.append(name)
            continue
        seconds = max(0.0, seconds - empty)
        rows.append((seconds * (reads + late), seconds, reads, late, name))
    rows.sort(reverse=True)
    table(f"headers, the {min(top, len(rows))} dearest of {len(rows)}: seconds for one file that includes nothing else, files\n"
          "that read it (behind +: those that have the precompiled header, and so pay less), and the product. It holds what\n"
          "the header itself includes, so rows do not add up; templates that a file makes of it come on top.",
          ["header", "seconds", "files", "seconds x files"],
          [[name, f"{each:.2f}", f"{reads}" + f" + {late}" * (late > 0), f"{cost:.0f}"]
           for cost, each, reads, late, name in rows[:top]])
    if failed:
        print("cannot be compiled alone: " + " ".join(failed))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", metavar="BUILD_DIRECTORY")
    parser.add_argument("--top", type=int, default=20, metavar="N", help="lines of each table (20)")
    parser.add_argument("--targets", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--headers", nargs="?", const="theirs", choices=["theirs", "own", "std", "all"])
    options = parser.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head`
    try:
        build = Build(options.build, options.targets)
        print_costs(build, options.top)
        if options.headers:
            wanted = ["theirs", "own", "std"] if options.headers == "all" else [options.headers]
            print_headers(build, wanted, options.top)
    except Bad as error:
        print(f"build_cost: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
