#!/usr/bin/env python3
"""Makes what users install from a build: a wheel, a tarball, or files under a prefix.

Usage: dist.py all BUILD DIRECTORY [--version V]    wheel, tarball and SHA256SUMS
       dist.py wheel BUILD DIRECTORY [--version V]  libtorch comes with pip, from the torch wheel that setup.sh pins
       dist.py install BUILD PREFIX                 with libtorch; DESTDIR is prepended to PREFIX
       dist.py tag FILE...                          the lowest manylinux tag whose systems can load these ELF files

In a prefix, programs are in lib/deepspeedjob/bin, libraries that a system may lack in lib/deepspeedjob/lib, and libtorch in
lib/deepspeedjob/torch; bin/ links to the programs. In site-packages, deepspeedjob/ is lib/deepspeedjob without torch/,
which is beside it. The programs' RPATH (dsj_program in cmake/DsjTargets.cmake) covers both, so no variable has to be set.
The same build gives the same bytes: times are SOURCE_DATE_EPOCH, by default the commit's time.
Exit codes: 0 done; 2 usage, or a program is not built; 3 a tool is missing or failed.
"""
import argparse
import base64
import contextlib
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

import sbom

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(HERE)
FOLDER = "lib/deepspeedjob"
PROGRAMS = ("dsj", "dsj-agent", "dsj-train", "dsj-make-model", "dsj-make-quickstart")
PLUGIN = "libdsj_columns.so"  # reads Parquet and Arrow files; exists if the build had Arrow
GPU = "libdsj_cuda.so"  # trains on GPUs with the libraries that pip installs; exists if the build had CUDA's compiler
NAMES_ITS_FUNCTIONS = {"dsj-train"}  # `dsj debug --stacks` needs its symbols
COMPLETIONS = {"bash": "share/bash-completion/completions/dsj", "zsh": "share/zsh/site-functions/_dsj",
               "fish": "share/fish/vendor_completions.d/dsj.fish"}

# The manylinux policy (PEP 600): a tag's glibc, and the newest symbol versions of GCC's libraries on such systems. From
# auditwheel's table; tests/run/dist_check.py compares with auditwheel if it is installed.
POLICY = (
    ((2, 28), {"GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}),
    ((2, 31), {"GLIBCXX": (3, 4, 28), "CXXABI": (1, 3, 12), "GCC": (7, 0, 0)}),
    ((2, 34), {"GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (7, 0, 0)}),
    ((2, 35), {"GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)}),
    ((2, 36), {"GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)}),
    ((2, 38), {"GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)}),
    ((2, 39), {"GLIBCXX": (3, 4, 33), "CXXABI": (1, 3, 15), "GCC": (14, 0, 0)}),
    ((2, 41), {"GLIBCXX": (3, 4, 33), "CXXABI": (1, 3, 15), "GCC": (14, 0, 0)}),
)
# Libraries of every manylinux system; all others are included.
SYSTEM = {"libc.so.6", "libm.so.6", "libmvec.so.1", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libutil.so.1",
          "libresolv.so.2", "libanl.so.1", "libgcc_s.so.1", "libstdc++.so.6", "libatomic.so.1", "libz.so.1",
          "ld-linux-x86-64.so.2", "linux-vdso.so.1"}
REQUIRED = re.compile(r"(\w+)_([0-9]+(?:\.[0-9]+)*)$")


def fail(code, *message):
    print("dist:", *message, file=sys.stderr)
    sys.exit(code)


def run(*command, **options):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    except FileNotFoundError:
        fail(3, f"{command[0]} is missing: scripts/setup.sh installs it")
    if done.returncode != 0:
        fail(3, f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


# ---- requirements of ELF files

def needed(path):
    """The libraries that an ELF file directly requires."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", path))


def versions_needed(path):
    """{"GLIBC": (2, 34), ...}: the newest version of each kind that an ELF file requires."""
    newest, section = {}, ""
    for line in run("readelf", "-VW", path).splitlines():
        if line.startswith("Version needs section") or line.startswith("Version definition section"):
            section = line
        found = re.search(r"Name: (\S+)  Flags:", line)
        version = found and section.startswith("Version needs") and REQUIRED.match(found[1])
        if version:
            number = tuple(int(part) for part in version[2].split("."))
            newest[version[1]] = max(newest.get(version[1], ()), number)
    return newest


def keeps(versions, glibc, others):
    """Whether a system with this glibc and these versions of GCC's libraries has all of `versions`."""
    return all(number <= (glibc if kind == "GLIBC" else others[kind]) for kind, number in versions.items()
               if kind == "GLIBC" or kind in others)


def tag_of(paths):
    """The lowest manylinux_2_N_x86_64 whose systems can load all of these files."""
    asked = [versions_needed(path) for path in paths]
    for glibc, others in POLICY:
        if all(keeps(versions, glibc, others) for versions in asked):
            return f"manylinux_{glibc[0]}_{glibc[1]}_x86_64"
    fail(3, f"newer than every manylinux policy known here: {asked}")
    return None


def found_libraries(program):
    """{name: path} of all libraries that the loader finds for a program."""
    said = run("ldd", program)
    if "not found" in said:
        fail(3, f"{program}: a library is missing:\n{said}")
    return {name: os.path.realpath(path) for name, path in re.findall(r"^\t(\S+) => (/\S+) ", said, re.MULTILINE)}


# ---- the files

class Stage:
    """A folder with the files to be installed under a prefix, and the origin of each."""

    def __init__(self, build, root):
        self.build, self.root, self.sources = build, root, {}
        self.torch = None  # the folder with torch/ and nvidia/

    def path(self, place):
        path = os.path.join(self.root, place)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def copy(self, source, place, mode=0o644):
        shutil.copyfile(source, self.path(place))
        os.chmod(self.path(place), mode)
        self.sources[place] = source

    def write(self, place, text, mode=0o644):
        with open(self.path(place), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(place), mode)

    def files(self):
        """Paths of all files and links, sorted."""
        return sorted(os.path.relpath(os.path.join(folder, name), self.root)
                      for folder, _, names in os.walk(self.root) for name in names)


def add_programs(stage):
    missing = [name for name in PROGRAMS if not os.path.exists(os.path.join(stage.build, "dist/bin", name))]
    if missing:
        fail(2, f"not built: {', '.join(missing)}; `make dist` builds them")
    for name in PROGRAMS:
        path = stage.path(f"{FOLDER}/bin/{name}")
        run("strip", "--strip-debug" if name in NAMES_ITS_FUNCTIONS else "--strip-all", "-o", path,
            os.path.join(stage.build, "dist/bin", name))
        os.chmod(path, 0o755)
        os.makedirs(os.path.join(stage.root, "bin"), exist_ok=True)
        os.symlink(f"../{FOLDER}/bin/{name}", os.path.join(stage.root, "bin", name))
    os.symlink("dsj", os.path.join(stage.root, "bin/kubectl-dsj"))


def add_optional(stage, name, source, without):
    """Adds a library that programs open, if the build has it. Returns whether it has. `source`: what would bring it;
    `without`: what its absence means."""
    built = os.path.join(stage.build, "dist/bin", name)
    if not os.path.exists(built):
        print(f"dist: {name} is not built ({source}): {without}", file=sys.stderr)
        return False
    run("strip", "--strip-all", "-o", stage.path(f"{FOLDER}/bin/{name}"), built)
    return True


def add_plugin(stage):
    """Adds the plug-in to the programs that open it, with Arrow's libraries and license."""
    if not add_optional(stage, PLUGIN, "scripts/setup.sh fetches Arrow", "Parquet and Arrow files will be refused"):
        return
    for name, path in found_libraries(os.path.join(stage.build, "bin", PLUGIN)).items():
        if name in SYSTEM:
            continue
        stage.copy(path, f"{FOLDER}/lib/{name}")
        run("strip", "--strip-all", stage.path(f"{FOLDER}/lib/{name}"))
        licenses = os.path.join(os.path.dirname(path), f"../pyarrow-{sbom.wheel(name)[1]}.dist-info/licenses")
        for license_name in sorted(os.listdir(licenses)):
            with open(os.path.join(licenses, license_name), encoding="utf-8") as file:
                stage.write(f"share/doc/deepspeedjob/licenses/pyarrow/{license_name}", file.read())


def add_libraries(stage, with_torch):
    """Adds the libraries that a manylinux system may lack, each under its soname."""
    for program in PROGRAMS:
        for name, path in found_libraries(os.path.join(stage.build, "bin", program)).items():
            if name in SYSTEM:
                continue
            if sbom.wheel(name):
                if name == "libtorch_cpu.so":
                    stage.torch = os.path.dirname(os.path.dirname(os.path.dirname(path)))
                continue
            if f"{FOLDER}/lib/{name}" not in stage.sources:
                stage.copy(path, f"{FOLDER}/lib/{name}")
                run("strip", "--strip-all", stage.path(f"{FOLDER}/lib/{name}"))
    if with_torch:
        for name, path in found_libraries(os.path.join(stage.build, "bin/dsj-train")).items():
            if sbom.wheel(name):
                stage.copy(path, f"{FOLDER}/{os.path.relpath(os.path.dirname(path), stage.torch)}/{name}")


def add_shared(stage):
    """Adds completions, manual pages, samples, pages, and licenses of included libraries."""
    dsj = os.path.join(stage.build, "bin/dsj")
    for shell, place in COMPLETIONS.items():
        stage.write(place, run(dsj, "completion", shell))
    run(dsj, "man", os.path.dirname(stage.path("share/man/man1/dsj.1")))
    for folder, folders, names in os.walk(os.path.join(SOURCE, "configs")):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            stage.copy(path, "share/deepspeedjob/configs/" + os.path.relpath(path, os.path.join(SOURCE, "configs")))
    for folder in ("docs", "docs/reports"):
        for name in sorted(os.listdir(os.path.join(SOURCE, folder))):
            if name.endswith((".md", ".svg")):
                stage.copy(os.path.join(SOURCE, folder, name), f"share/doc/deepspeedjob/{folder}/{name}")
    for name in ("README.md", "CHANGELOG.md"):
        stage.copy(os.path.join(SOURCE, name), f"share/doc/deepspeedjob/{name}")
    for place, source in list(stage.sources.items()):
        package = place.startswith(f"{FOLDER}/lib/") and sbom.debian(source)
        if package:
            stage.copy(f"/usr/share/doc/{package[0]}/copyright", f"share/doc/deepspeedjob/licenses/{package[0]}")
    for place in [place for place in stage.sources if not place.startswith(f"{FOLDER}/")]:
        if not place.startswith("share/doc/deepspeedjob/licenses/"):
            del stage.sources[place]  # ours


def add_sbom(stage, target):
    made, unknown = sbom.document(target, stage.root, stage.sources)
    if unknown:
        fail(3, f"no Debian package and no wheel has {unknown}")
    stage.write("share/doc/deepspeedjob/sbom.spdx.json", json.dumps(made, indent=1) + "\n")


@contextlib.contextmanager
def staged(build, target, with_torch):
    with tempfile.TemporaryDirectory(prefix="dsj-dist-") as root:
        stage = Stage(build, root)
        add_programs(stage)
        add_libraries(stage, with_torch)
        add_plugin(stage)
        if not with_torch:  # else CUDA's half of libtorch would be missing
            add_optional(stage, GPU, "DSJ_SETUP_CUDA=1 scripts/setup.sh fetches CUDA's compiler", "the wheel trains on CPUs")
        add_shared(stage)
        add_sbom(stage, target)
        yield stage


# ---- names and times

def version_of(build):
    """A PEP 440 version: the release; between releases the next one's .dev0 with the commit."""
    told = json.loads(run(os.path.join(build, "bin/dsj"), "--version", "-o", "json"))
    release, describe = told["version"], told["describe"]
    if describe == f"v{release}":
        return release
    local = re.search(r"g[0-9a-f]+(-dirty)?$", describe)
    return f"{release}.dev0+{local[0].replace('-', '.')}"


def epoch():
    """SOURCE_DATE_EPOCH in seconds; else the commit's time, else the start of 1980."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if not given:
        done = subprocess.run(["git", "-c", "safe.directory=*", "-C", SOURCE, "log", "-1", "--format=%ct"], capture_output=True,
                              text=True, check=False)
        given = done.stdout.strip() if done.returncode == 0 else ""
    return max(int(given or 0), 315532800)


def torch_version():
    with open(os.path.join(HERE, "setup.sh"), encoding="utf-8") as file:
        return re.search(r"^torch_version=(\S+)", file.read(), re.MULTILINE)[1]


# ---- the wheel

# pip copies links as files, so bin/ gets a script that finds the program in its environment's site-packages.
ENTRY = """#!/bin/sh
# Starts the program of this name in the package deepspeedjob of this environment.
name=$(basename "$0")
here=$(dirname "$(readlink -f "$0")")
for site in "$here"/../lib/python3*/site-packages "$here"/../lib/python3*/dist-packages "$here"/..; do
  if [ -x "$site/deepspeedjob/bin/$name" ]; then exec "$site/deepspeedjob/bin/$name" "$@"; fi
done
echo "$name: there is no package deepspeedjob beside $here; install the wheel again" >&2
exit 3
"""

METADATA = """Metadata-Version: 2.1
Name: deepspeedjob
Version: {version}
Summary: Fine-tunes Hugging Face models with a DeepSpeed ds_config.json, in C++
Requires-Python: >=3.9
Requires-Dist: torch=={torch}
Description-Content-Type: text/markdown

{description}"""


def record_line(place, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{place},sha256={digest},{len(data)}"


def wheel_entries(stage, name, version, tag):
    """{path in the wheel: (bytes, mode)}"""
    entries = {}
    for place in stage.files():
        path = os.path.join(stage.root, place)
        if place.startswith("bin/"):
            if os.path.basename(place) in PROGRAMS:
                entries[f"{name}.data/scripts/{os.path.basename(place)}"] = ENTRY.encode(), 0o755
            continue
        to = place.removeprefix("lib/") if place.startswith(f"{FOLDER}/") else f"{name}.data/data/{place}"
        with open(path, "rb") as file:
            entries[to] = file.read(), os.stat(path).st_mode & 0o777
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as file:
        description = file.read()
    info = {"METADATA": METADATA.format(version=version, torch=torch_version(), description=description),
            "WHEEL": f"Wheel-Version: 1.0\nGenerator: DeepSpeedJob\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n"}
    for place, text in info.items():
        entries[f"{name}.dist-info/{place}"] = text.encode(), 0o644
    return entries


def make_wheel(build, directory, version):
    with staged(build, "wheel", with_torch=False) as stage:
        elfs = [os.path.join(stage.root, place) for place in stage.files() if place.startswith(f"{FOLDER}/")]
        tag = tag_of(elfs)
        name = f"deepspeedjob-{version}"
        entries = wheel_entries(stage, name, version, tag)
    record = f"{name}.dist-info/RECORD"
    lines = [record_line(place, data) for place, (data, _) in sorted(entries.items())] + [f"{record},,"]
    ordered = sorted(entries.items()) + [(record, (("\n".join(lines) + "\n").encode(), 0o644))]
    path = os.path.join(directory, f"{name}-py3-none-{tag}.whl")
    moment = time.gmtime(epoch())[:6]
    with zipfile.ZipFile(path + ".new", "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for place, (data, mode) in ordered:
            info = zipfile.ZipInfo(place, moment)
            info.compress_type, info.create_system = zipfile.ZIP_DEFLATED, 3
            info.external_attr = (0o100000 | mode) << 16
            archive.writestr(info, data)
    os.replace(path + ".new", path)
    return path


# ---- the tarball and the prefix

def make_tarball(build, directory, version):
    with staged(build, "tarball", with_torch=True) as stage:
        stage.copy(os.path.join(HERE, "install.sh"), "install.sh", 0o755)
        glibc = tag_of([os.path.join(stage.root, place) for place in stage.files()
                        if place.startswith((f"{FOLDER}/bin/", f"{FOLDER}/lib/"))]).split("_")
        name = f"deepspeedjob-{version}-linux-x86_64-glibc{glibc[1]}.{glibc[2]}"
        path, moment = os.path.join(directory, name + ".tar.gz"), epoch()
        with open(path + ".new", "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed, \
                tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for place in stage.files():
                source = os.path.join(stage.root, place)
                info = archive.gettarinfo(source, f"{name}/{place}")
                info.uid = info.gid = 0
                info.uname = info.gname = "root"
                info.mtime = moment
                if info.issym():
                    info.mode = 0o777
                    archive.addfile(info)
                    continue
                info.type, info.size = tarfile.REGTYPE, os.path.getsize(source)
                with open(source, "rb") as file:
                    archive.addfile(info, file)
        os.replace(path + ".new", path)
    return path


def install(build, prefix):
    destination = os.environ.get("DESTDIR", "") + os.path.abspath(prefix)
    with staged(build, "prefix", with_torch=True) as stage:
        try:
            for place in stage.files():
                to = os.path.join(destination, place)
                os.makedirs(os.path.dirname(to), exist_ok=True)
                if os.path.lexists(to):
                    os.remove(to)  # not overwritten, because it may be running
                shutil.copy2(os.path.join(stage.root, place), to, follow_symlinks=False)
        except OSError as problem:
            fail(3, f"{problem.filename}: {problem.strerror}; choose another folder: make install PREFIX=DIR")
    print(f"dist: DeepSpeedJob is in {destination}: {os.path.join(destination, 'bin/dsj')}")


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_sums(directory):
    """Writes SHA256SUMS of every file in the directory."""
    names = sorted(name for name in os.listdir(directory) if name != "SHA256SUMS" and os.path.isfile(os.path.join(directory, name)))
    with open(os.path.join(directory, "SHA256SUMS"), "w", encoding="utf-8") as sums:
        sums.writelines(f"{digest(os.path.join(directory, name))}  {name}\n" for name in names)


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "tag":
        print(tag_of(sys.argv[2:]))
        return 0
    parser = argparse.ArgumentParser(usage="\n".join(__doc__.splitlines()[2:6]).removeprefix("Usage: "))
    parser.add_argument("what", choices=("all", "wheel", "install"))
    parser.add_argument("build")
    parser.add_argument("directory")
    parser.add_argument("--version")
    options = parser.parse_args()
    if options.what == "install":
        install(options.build, options.directory)
        return 0
    os.makedirs(options.directory, exist_ok=True)
    version = options.version or version_of(options.build)
    made = [make_wheel(options.build, options.directory, version)]
    if options.what == "all":
        made.append(make_tarball(options.build, options.directory, version))
        write_sums(options.directory)
    for path in made:
        print(f"dist: {path}: {os.path.getsize(path) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
