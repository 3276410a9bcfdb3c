#!/usr/bin/env python3
"""`dsj completion` in the shells themselves, and `dsj man` in groff, against what each verb's --help shows.

Usage: completion_check.py BIN GTEST_REPORT. A shell that is not on PATH is skipped, loudly; bash is always there.
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cases import Report, Skip, expect  # noqa: E402

OWN_HELP = {"run", "import"}  # theirs is a text, not a parser's


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    expect(done.returncode == 0, f"{' '.join(command)[:200]}: {done.returncode} {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


class Check:
    def __init__(self, bin_, room):
        self.bin, self.room = bin_, room
        self.environment = {"PATH": f"{bin_}:/usr/bin:/bin", "HOME": room, "TERM": "dumb"}

    def dsj(self, *words):
        return run(os.path.join(self.bin, "dsj"), *words)

    def verbs(self):
        """Each verb that `dsj --help` lists, and those with a second word."""
        verbs = re.findall(r"^  ([a-z-]+) {2,}\S", self.dsj("--help"), re.MULTILINE)
        expect(len(verbs) > 20, verbs)
        return verbs

    def commands(self):
        for verb in self.verbs():
            second = {"data": ("show", "check"), "checkpoint": ("show", "import", "export"), "export": ("gguf",)}.get(verb, ())
            yield from ([verb, word] for word in second) if second else ([verb],)

    def options(self, command):
        """The names of all options in a command's --help."""
        text = self.dsj(*command, "--help")
        section = text[text.index("\nOptions:"):]
        names = set()
        for line in re.findall(r"^  (-\S+)", section, re.MULTILINE):
            names |= set(re.sub(r"\{.*?\}", "", line).split(","))  # --no-verify{false}: a flag that sets false
        return names

    # ---- bash

    def bash(self, *words):
        """What bash offers for the last of these words, as readline splits them."""
        script = f"source <(dsj completion bash); COMP_WORDS=({' '.join(map(shlex.quote, words))}); " \
                 f"COMP_CWORD={len(words) - 1}; _dsj; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        return set(run("bash", "-euc", script, env=self.environment, cwd=self.room).split())

    def bash_verbs(self):
        verbs = set(self.verbs())
        expect(self.bash("dsj", "") == verbs | {"--help", "--version"}, self.bash("dsj", ""))
        expect(self.bash("dsj", "re") == {verb for verb in verbs if verb.startswith("re")}, self.bash("dsj", "re"))
        expect(self.bash("dsj", "checkpoint", "") == {"show", "import", "export"}, self.bash("dsj", "checkpoint", ""))
        expect(self.bash("dsj", "import", "h") == {"hostfile"}, self.bash("dsj", "import", "h"))
        expect(self.bash("dsj", "completion", "") == {"bash", "zsh", "fish"}, self.bash("dsj", "completion", ""))

    def bash_options(self):
        for command in self.commands():
            if command[0] in OWN_HELP:
                continue
            offered, helped = self.bash("dsj", *command, "-"), self.options(command)
            expect(offered == helped, f"{command}: offers {sorted(offered - helped)} more, lacks {sorted(helped - offered)}")

    def every_result_in_json(self):
        """-o is the form of a result, never a file; of all verbs that have one, json is a form."""
        without = {("chat",), ("completion",), ("man",), ("logs",), ("exec",), ("debug",)}  # a text, or files, or a program's own
        for command in self.commands():
            offered = self.bash("dsj", *command, "-o", "")
            expect(("json" in offered) == (tuple(command) not in without), f"{command}: -o offers {sorted(offered)}")

    def bash_values(self):
        expect(self.bash("dsj", "plan", "-o", "") == {"text", "yaml", "json"}, self.bash("dsj", "plan", "-o", ""))
        expect(self.bash("dsj", "plan", "--output", "=", "j") == {"json"}, self.bash("dsj", "plan", "--output", "=", "j"))
        expect(self.bash("dsj", "plan", "--output", "=") == {"text", "yaml", "json"}, "--output=")
        expect(self.bash("dsj", "plan", "--set", "te") == set(), "any word: bash's own files")

    def bash_run(self):
        offered = self.bash("dsj", "run", "--per_device_train")
        expect(offered == {"--per_device_train_batch_size"}, offered)
        offered = self.bash("dsj", "import", "roll", "x.yaml", "--f")
        expect(offered == {"--force"}, offered)

    # ---- the others

    def zsh(self):
        if not shutil.which("zsh"):
            raise Skip("zsh is not on PATH")
        path = os.path.join(self.room, "_dsj")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.dsj("completion", "zsh"))
        run("zsh", "-n", path)
        # _describe prints what it gets; the words of the list are before the colon.
        script = f"compdef() {{ }}; source {shlex.quote(path)}; _files() {{ print FILES }}; " \
                 "_describe() { print -l -- ${(P)2} }; words=(dsj %s); CURRENT=%d; PREFIX=%s; _dsj"

        def offered(*words):
            text = run("zsh", "-fc", script % (" ".join(map(shlex.quote, words)), len(words) + 1, shlex.quote(words[-1])))
            return {line.split(":")[0] for line in text.split("\n") if line}

        expect(set(self.verbs()) <= offered(""), offered(""))
        expect(offered("checkpoint", "") == {"show", "import", "export"}, offered("checkpoint", ""))
        expect(self.options(["plan"]) <= offered("plan", "-"), offered("plan", "-"))
        expect(offered("plan", "-o", "") == {"text", "yaml", "json"}, offered("plan", "-o", ""))
        expect(offered("plan", "--set", "") == {"FILES"}, offered("plan", "--set", ""))

    def fish(self):
        if not shutil.which("fish"):
            raise Skip("fish is not on PATH")

        def offered(line):
            text = run("fish", "--no-config", "-c", f"dsj completion fish | source; complete -C {shlex.quote(line)}",
                       env=self.environment, cwd=self.room)
            return {row.split("\t")[0] for row in text.split("\n") if row}

        expect(set(self.verbs()) <= offered("dsj "), offered("dsj "))
        expect({"show", "import", "export"} <= offered("dsj checkpoint "), offered("dsj checkpoint "))
        expect(offered("dsj plan -o ") == {"text", "yaml", "json"}, offered("dsj plan -o "))
        expect({"--set", "--device"} <= offered("dsj plan --"), offered("dsj plan --"))
        expect("--set" not in offered("dsj get --"), offered("dsj get --"))

    def manual(self):
        folder = os.path.join(self.room, "man1")
        self.dsj("man", folder)
        pages = set(os.listdir(folder))
        expect(pages == {"dsj.1"} | {"dsj-" + "-".join(command) + ".1" for command in self.commands()}, sorted(pages))
        for command in self.commands():
            if command[0] in OWN_HELP:
                continue
            with open(os.path.join(folder, "dsj-" + "-".join(command) + ".1"), encoding="utf-8") as file:
                text = file.read().replace("\\-", "-")
            for name in self.options(command):
                expect(f"\\fB{name}\\fR" in text, f"{command}: {name} is not in its page")
        if not shutil.which("groff"):
            raise Skip("groff is not on PATH: the pages were not set")
        for page in sorted(pages):
            done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", os.path.join(folder, page)], capture_output=True, text=True,
                                  check=False)
            words = re.sub(r".\x08|\x1b\[[0-9;]*m", "", done.stdout)  # bold by overstriking, or by colours
            expect(done.returncode == 0 and not done.stderr and "SEE ALSO" in words, f"{page}: {done.stderr[:500]}")


def main():
    bin_, report = os.path.abspath(sys.argv[1]), Report("Completion", sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="dsj-completion-") as room:
        check = Check(bin_, room)
        for name in ("bash_verbs", "bash_options", "every_result_in_json", "bash_values", "bash_run", "zsh", "fish", "manual"):
            report.run(name, getattr(check, name))
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
