#!/usr/bin/env python3
"""Runs a Ninja command with one line of progress instead of hundreds; the log has the whole output.

Usage: build_progress.py LOG ninja ARGUMENTS...

On a terminal one line is updated: commands done of all, the time, the file. Otherwise it prints a line every 10 %. When a
command fails, its output is shown at once, without its page of flags. Exit code: Ninja's; 130 after Ctrl-C, which ends
Ninja.
Ninja's own progress line needs a terminal, and then its output cannot go to a log.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import time


class View:
    """The progress display on standard error."""

    def __init__(self, terminal, clock=time.monotonic):
        self._terminal, self._clock, self._start = terminal, clock, clock()
        self._tenth, self._drawn = 0, 0.0
        self._moving = False

    def _elapsed(self):
        seconds = int(self._clock() - self._start)
        return f"{seconds // 60}:{seconds % 60:02d}"

    def step(self, done, total, what):
        if self._terminal:
            now = self._clock()
            if now - self._drawn < 0.1 and done < total:
                return
            self._drawn, self._moving = now, True
            line = f"  {done}/{total}  {self._elapsed()}  {what}"
            sys.stderr.write("\r\x1b[K" + line[:shutil.get_terminal_size().columns - 1])
            sys.stderr.flush()
        elif total >= 10 and done * 10 // total > self._tenth:
            self._tenth = done * 10 // total
            print(f"  {self._tenth * 10} %, {done}/{total}, {self._elapsed()}", file=sys.stderr, flush=True)

    def say(self, text):
        self.clear()
        print(text, file=sys.stderr, flush=True)

    def clear(self):
        if self._moving:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._moving = False


def follow(lines, log, view):
    """Reads all of Ninja's lines. A failed command's output follows "FAILED: OUTPUTS" and its command line."""
    failed, skip = False, False
    for line in lines:
        log.write(line)
        line = line.rstrip("\n")
        if skip:
            skip = False
            continue
        step = re.match(r"\[(\d+)/(\d+)\] (.*)", line)
        if step:
            failed = False
            what = re.sub(r"^\w+ing CXX (object|static library|executable) |CMakeFiles/[^/]+\.dir/|\.o$", "", step[3])
            view.step(int(step[1]), int(step[2]), what)
        elif line.startswith("FAILED: "):
            failed = skip = True
            view.say(line)
        elif failed or re.match(r"ninja: (error|fatal|build stopped)", line):
            view.say(line)


def main():
    path, command = sys.argv[1], sys.argv[2:]
    view = View(sys.stderr.isatty())
    environment = os.environ | {"NINJA_STATUS": "[%f/%t] "}
    with open(path, "w", buffering=1, encoding="utf-8") as log:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 env=environment, text=True, errors="replace", bufsize=1)
        # Ctrl-C also reaches Ninja, which deletes half-written outputs: read on until it ends.
        interrupted = []
        signal.signal(signal.SIGINT, lambda *_: interrupted.append(True))
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        follow(child.stdout, log, view)
        code = child.wait()
    view.clear()
    if interrupted:
        return 130
    if code != 0:
        view.say(f"the build's whole log: {path}")
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
