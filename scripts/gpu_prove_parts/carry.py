"""Packs our programs for a machine with a GPU: stripped programs and the libraries that they load, except those of libtorch,
CUDA and the C library. They are built against the same libtorch wheel that the machine has.
"""
import os
import re
import shutil
import subprocess
import tarfile

REPOSITORY = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
PROGRAMS = ("dsj", "dsj-agent", "dsj-train", "dsj-make-model", "dsj-make-quickstart", "gpu_tests", "libdsj_cuda.so")
# Libraries of the machine: those of torch's wheel, the driver and its C library.
THERE = re.compile(r"lib(torch|c10|cu[a-z]+|nccl|nv|gomp|stdc\+\+|gcc_s|c|m|dl|rt|pthread|util|resolv)[-_.]|ld-linux|linux-vdso")
# Limits for the packed programs: an image with Python 3.12 has at least these versions.
MOST = {"GLIBC": (2, 38), "GLIBCXX": (3, 4, 32)}
LIMIT = 64 << 20  # for all packed files


ARCHIVE, FOLDERS = "programs.tar.gz", ("bin", "lib")


def unpack(carried):
    """Unpacks the programs and libraries on the GPU machine, once."""
    if not os.path.exists(os.path.join(carried, "bin")):
        with tarfile.open(os.path.join(carried, ARCHIVE)) as archive:
            archive.extractall(carried)


def output(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def libraries_of(program):
    """{name: path} of the libraries that a program loads and the machine lacks."""
    found = dict(re.findall(r"(\S+) => (/\S+)", output("ldd", program)))
    return {name: path for name, path in found.items() if not THERE.match(name)}


def too_new(path):
    """Versions of the C and C++ libraries that a file needs and an image may lack."""
    versions = set(re.findall(r"\b(GLIBC|GLIBCXX)_([0-9.]+)\b", output("objdump", "-T", path)))
    return sorted(f"{name}_{version}" for name, version in versions
                  if tuple(int(part) for part in version.split(".")) > MOST[name])


def size_of(folder):
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names)


def tree_size(repository):
    """Files to carry besides the packed folder: tracked files and those that git does not ignore."""
    names = output("git", "-C", repository, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    return sum(os.path.getsize(os.path.join(repository, name)) for name in set(names)
               if name and os.path.isfile(os.path.join(repository, name)))


def pack(build, carried):
    """Returns 0, or 1 after printing what is wrong."""
    programs = os.path.join(build, "bin")
    missing = [name for name in PROGRAMS if not os.path.exists(os.path.join(programs, name))]
    if missing:
        print(f"not in {programs}: {' '.join(missing)}\n"
              f"build them: scripts/build.sh {build} 2 -- {' '.join(n for n in PROGRAMS if n != 'libdsj_cuda.so')} dsj_cuda")
        return 1
    shutil.rmtree(carried, ignore_errors=True)
    os.makedirs(os.path.join(carried, "bin"))
    os.makedirs(os.path.join(carried, "lib"))
    libraries = {}
    for name in PROGRAMS:
        to = os.path.join(carried, "bin", name)
        subprocess.run(["strip", "--strip-unneeded", "-o", to, os.path.join(programs, name)], check=True)
        if not name.endswith(".so"):
            libraries |= libraries_of(os.path.join(programs, name))
    for name, path in libraries.items():
        shutil.copyfile(os.path.realpath(path), os.path.join(carried, "lib", name))
    problems = []
    for folder in ("bin", "lib"):
        for name in os.listdir(os.path.join(carried, folder)):
            new = too_new(os.path.join(carried, folder, name))
            problems += [f"{name} asks for {', '.join(new)}"] if new else []
    with tarfile.open(os.path.join(carried, ARCHIVE), "w:gz") as archive:
        for folder in FOLDERS:
            archive.add(os.path.join(carried, folder), folder)
            shutil.rmtree(os.path.join(carried, folder))
    carries, tree = size_of(carried), tree_size(REPOSITORY)
    if carries + tree > LIMIT:
        problems.append(f"{(carries + tree) >> 20} MiB travel, the limit is {LIMIT >> 20}")
    for problem in problems:
        print(problem)
    print(f"result: gpu_prove carry: {len(PROGRAMS)} programs, {len(libraries)} libraries, {carries / 2**20:.1f} MiB beside a "
          f"tree of {tree / 2**20:.1f} MiB")
    return 1 if problems else 0
