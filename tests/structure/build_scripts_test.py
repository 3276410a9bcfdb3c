#!/usr/bin/env python3
"""What `make` shows of a build, how its cost is read from Ninja's log, and what images begin with. Usage: build_scripts_test.py SOURCE."""
import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else os.getcwd()
sys.path.insert(0, os.path.join(SOURCE, "scripts"))
import build_cost      # noqa: E402
import build_progress  # noqa: E402

LINES = """[1/20] Building CXX object engine/CMakeFiles/dsj_comm.dir/comm/fd.cc.o
[2/20] Building CXX object common/CMakeFiles/dsj_common.dir/log.cc.o
FAILED: common/CMakeFiles/dsj_common.dir/log.cc.o
/usr/bin/c++ -I/somewhere -c log.cc
log.cc:3:1: error: expected a declaration
    3 | )
[3/20] Linking CXX executable bin/dsj
bin/dsj: warning: seen in the log alone
ninja: build stopped: subcommand failed.
"""


def shown(terminal, lines):
    """(what the user sees, the log) of Ninja's lines."""
    error, log = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(error):
        view = build_progress.View(terminal, clock=lambda: 65.0)
        build_progress.follow(io.StringIO(lines), log, view)
        view.clear()
    return error.getvalue(), log.getvalue()


def phase(*command):
    return subprocess.run([os.path.join(SOURCE, "scripts/phase.sh"), "build", "a minute", "compiles", *command],
                          capture_output=True, text=True, check=False)


class Progress(unittest.TestCase):
    def test_a_failed_command_is_shown_in_its_own_words(self):
        text, log = shown(False, LINES)
        self.assertEqual(text, "  10 %, 2/20, 0:00\n"
                               "FAILED: common/CMakeFiles/dsj_common.dir/log.cc.o\n"
                               "log.cc:3:1: error: expected a declaration\n    3 | )\n"
                               "ninja: build stopped: subcommand failed.\n")
        self.assertEqual(log, LINES, "the log has all of it")

    def test_without_a_terminal_a_line_every_tenth(self):
        text, _ = shown(False, "".join(f"[{n}/200] Building CXX object {n}.o\n" for n in range(1, 201)))
        self.assertEqual(text.splitlines(), [f"  {n} %, {n * 2}/200, 0:00" for n in range(10, 101, 10)])

    def test_on_a_terminal_one_line_moves(self):
        text, _ = shown(True, LINES.splitlines(keepends=True)[0])
        self.assertNotIn("\n", text)
        text, _ = shown(True, "[20/20] Building CXX object engine/CMakeFiles/dsj_comm.dir/comm/fd.cc.o\n")
        self.assertIn("  20/20  0:00  engine/comm/fd.cc", text)
        self.assertNotIn("\n", text)

    def test_the_exit_code_is_the_commands(self):
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "log")
            done = subprocess.run([sys.executable, os.path.join(SOURCE, "scripts/build_progress.py"), log,
                                   "sh", "-c", "echo hello; exit 7"], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (7, ""))
            self.assertIn(log, done.stderr)
            with open(log, encoding="utf-8") as file:
                self.assertEqual(file.read(), "hello\n")


class Phase(unittest.TestCase):
    def test_says_what_and_how_long_and_keeps_the_exit_code(self):
        good, bad = phase("true"), phase("sh", "-c", "exit 5")
        self.assertEqual((good.returncode, bad.returncode), (0, 5))
        self.assertRegex(good.stderr, r"^\[build\] compiles: a minute\n\[build\] done in \d+ s\n$")
        self.assertRegex(bad.stderr, r"\n\[build\] failed after \d+ s, exit code 5\n$")


class Setup(unittest.TestCase):
    """What no set-up can mend is refused with the reason, and nothing is installed."""

    def setup(self, environment=None, **programs):
        """Exit code and words where these programs say something else, or are a script; None: it is not there."""
        with tempfile.TemporaryDirectory(prefix="with space ") as folder:
            tools = os.path.join(folder, "bin")
            os.mkdir(tools)
            for name in ("bash", "basename", "cat", "df", "dirname", "env", "id", "mkdir", "mktemp", "mv", "rm", "sed", "tail", "touch",
                         "uname"):
                os.symlink(shutil.which(name), os.path.join(tools, name))
            for name, says in {"apt-get": "", "dpkg-query": "install ok installed", **programs}.items():
                path = os.path.join(tools, name)
                if os.path.lexists(path):
                    os.remove(path)
                if says is not None:
                    with open(path, "w", encoding="utf-8") as file:
                        file.write(says if says.startswith("#!") else f"#!/bin/bash\ncat <<'END'\n{says}\nEND\n")
                    os.chmod(path, 0o755)
            done = subprocess.run([shutil.which("bash"), os.path.join(SOURCE, "scripts/setup.sh")], text=True, capture_output=True,
                                  check=False, env={"PATH": tools, "HOME": folder, "DSJ_SETUP_TORCH": "no"} | (environment or {}))
            return done.returncode, done.stderr

    def test_another_processor(self):
        code, words = self.setup(uname="aarch64")
        self.assertEqual(code, 3, words)
        self.assertRegex(words, "aarch64.*need x86_64")

    def test_another_distribution(self):
        code, words = self.setup(**{"apt-get": None})
        self.assertEqual(code, 3, words)
        self.assertIn("Debian 12 or Ubuntu 24.04", words)

    def test_no_room(self):
        code, words = self.setup(df="Avail\n1048576")
        self.assertEqual(code, 3, words)
        self.assertRegex(words, "1024 MB free; libtorch needs 3 GB")

    def test_an_old_compiler(self):
        code, words = self.setup(**{"g++": "11.4.0"})
        self.assertEqual(code, 3, words)
        self.assertIn("g++ is version 11.4.0; C++23 needs 12", words)

    def test_an_old_compiler_on_offer(self):
        policy = "g++:\n  Installed: (none)\n  Candidate: 4:11.2.0-1ubuntu1\n  Version table:"
        code, words = self.setup(**{"dpkg-query": "unknown", "apt-cache": policy,
                                    "apt-get": '#!/bin/bash\n[[ "$*" != *install* ]] || echo "was asked to install" >&2\n'})
        self.assertEqual(code, 3, words)
        self.assertIn("g++ comes here in version 11.2.0; C++23 needs 12", words)
        self.assertNotIn("was asked", words)

    def test_a_cache_that_cannot_be_written(self):
        code, words = self.setup({"DSJ_CACHE": "/dev/null/dsj"}, **{"g++": "12"})
        self.assertEqual(code, 3, words)
        self.assertRegex(words, "/dev/null/dsj cannot be written.*DSJ_CACHE")

    def test_a_download_that_fails(self):
        code, words = self.setup({"DSJ_SETUP_TORCH": ""}, df="Avail\n4194304",
                                 **{"g++": "12", "python3": "#!/bin/bash\necho 'No matching distribution' >&2; exit 1\n"})
        self.assertEqual(code, 3, words)
        self.assertRegex(words, "libtorch: torch .* was not downloaded: .*https_proxy")

    def test_the_wheels_come_into_a_path_with_a_space(self):
        pip = ('#!/bin/bash\nwhile [ $# -gt 1 ]; do [ "$1" != -d ] || to="$2"; shift; done\n'
               'name="${1%%==*}"; touch "$to/${name//-/_}-${1##*==}-cp312.whl"\n')
        code, words = self.setup({"DSJ_SETUP_TORCH": ""}, df="Avail\n4194304", sha256sum="#!/bin/bash\ncat >/dev/null\n",
                                 **{"g++": "12", "python3": pip, "unzip": '#!/bin/bash\n[ -e "$3" ]\n'})
        self.assertEqual(code, 0, words)
        code, words = self.setup({"DSJ_SETUP_TORCH": ""}, df="Avail\n4194304", sha256sum="#!/bin/bash\ncat >/dev/null; exit 1\n",
                                 **{"g++": "12", "python3": pip})
        self.assertEqual(code, 3, words)
        self.assertRegex(words, "with space .*/torch-.* does not have the pinned checksum")

    def test_sudo_keeps_the_users_proxy(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, says in (("id", "echo 1000"), ("sudo", "printf '%s ' \"$@\"")):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write("#!/bin/bash\n" + says)
                os.chmod(file.name, 0o755)
            for proxy, kept in (({"https_proxy": "http://me:word@proxy"}, "-n --preserve-env=http_proxy,https_proxy,no_proxy apt-get"),
                                ({}, "-n apt-get")):
                done = subprocess.run([shutil.which("bash"), "-uc", '. "$0"; sudo_options=(-n); apt_update',
                                       os.path.join(SOURCE, "scripts/apt.sh")], text=True, capture_output=True, check=True,
                                      env={"PATH": folder} | proxy)
                self.assertTrue(done.stdout.startswith(kept), done.stdout)
                self.assertNotIn("me:word", done.stdout, "every process can read another's arguments")

    def test_a_machine_that_has_everything(self):
        self.assertEqual(self.setup(**{"g++": "12"}), (0, ""))


class Jobs(unittest.TestCase):
    def test_as_many_compilers_as_have_memory(self):
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "proc"))
            with open(os.path.join(folder, "nproc"), "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\necho 8\n")
            os.chmod(file.name, 0o755)
            for kilobytes, compilers in ((900_000, 1), (3_700_000, 2), (4_000_000, 3), (64_000_000, 8)):
                with open(os.path.join(folder, "proc/meminfo"), "w", encoding="utf-8") as file:
                    file.write(f"MemTotal: 99999999 kB\nMemAvailable: {kilobytes} kB\n")
                done = subprocess.run([os.path.join(SOURCE, "scripts/jobs.sh"), "compilers", folder], text=True, check=True,
                                      capture_output=True, env=os.environ | {"PATH": folder + ":" + os.environ["PATH"]})
                self.assertEqual(int(done.stdout), compilers, kilobytes)


class Makefile(unittest.TestCase):
    def test_a_checkout_whose_path_has_a_space(self):
        with tempfile.TemporaryDirectory(prefix="with space ") as folder:
            shutil.copy(os.path.join(SOURCE, "Makefile"), folder)
            os.symlink(os.path.join(SOURCE, "scripts"), os.path.join(folder, "scripts"))
            for goal, word in (("test", "DSJ_FUZZ_DIR={}/build/fuzz"), ("bench-operator", "DSJ_CLUSTER_STATE={}/build/cluster/bench")):
                done = subprocess.run(["make", "-n", goal], cwd=folder, capture_output=True, text=True, check=True)
                self.assertIn(word.format(os.path.realpath(folder)), shlex.split(done.stdout))


class Cost(unittest.TestCase):
    LOG = ["# ninja log v5\n",
           "0\t5000\t1\ta.o\taa\n",
           "0\t9000\t1\told.o\tbb\n",
           "100\t1600\t2\ta.o\tcc\n",            # newer: the one that counts
           "1600\t2000\t2\tbin/dsj\tdd\n",
           "1600\t2000\t2\tbin/kubectl-dsj\tdd\n",  # the same command's second output
           "2000\t21"]                              # being written

    def test_newest_run_of_each_command(self):
        for version in (5, 6, 7):
            commands = build_cost.read_log([f"# ninja log v{version}\n"] + self.LOG[1:])
            self.assertEqual(sorted((c.outputs, c.seconds) for c in commands),
                             [(["a.o"], 1.5), (["bin/dsj", "bin/kubectl-dsj"], 0.4), (["old.o"], 9.0)])

    def test_an_unknown_log_is_refused(self):
        for first in ("# ninja log v4\n", "something\n", ""):
            with self.assertRaises(build_cost.Bad):
                build_cost.read_log([first])

    def test_kinds(self):
        kinds = {"a/CMakeFiles/x.dir/y.cc.o": "compile", "e/cmake_pch.hxx.gch": "precompiled header",
                 "a/libx.a": "archive", "bin/dsj": "link", "lib/libx.so.1": "link", "build.ninja": "other"}
        self.assertEqual({output: build_cost.kind_of(output) for output in kinds}, kinds)

    def test_a_unity_source_is_its_members(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "Unity", "unity_0_cxx.cxx")
            os.mkdir(os.path.dirname(path))
            with open(path, "w", encoding="utf-8") as file:
                file.write("/* by CMake */\n" + "".join(f'/* x */\n#include "/src/zero/{n}.cc"\n' for n in "ab"))
            self.assertEqual(build_cost.sources_of(path), ["/src/zero/a.cc", "/src/zero/b.cc"])
        self.assertEqual(build_cost.sources_of("/src/zero/a.cc"), ["/src/zero/a.cc"])

    def test_whose_a_header_is(self):
        of = {"/src/common/result.h": "own", "/usr/include/c++/12/string": "std",
              "/usr/include/c++/12/bits/stl_map.h": None, "/usr/include/unistd.h": None,
              "/usr/include/nlohmann/json.hpp": "theirs", "/opt/torch/include/ATen/ATen.h": "theirs"}
        self.assertEqual({path: build_cost.which(path, "/src") for path in of}, of)


class Images(unittest.TestCase):
    def test_every_base_is_pinned(self):
        with open(os.path.join(SOURCE, "Dockerfile"), encoding="utf-8") as file:
            stages = re.findall(r"^FROM (\S+) AS (\S+)$", file.read(), re.MULTILINE)
        self.assertTrue(stages)
        known = {"scratch"}
        for base, stage in stages:
            if base not in known:
                self.assertRegex(base, r"@sha256:[0-9a-f]{64}$", f"stage {stage} begins with a name that may change")
            known.add(stage)


if __name__ == "__main__":
    unittest.main()
