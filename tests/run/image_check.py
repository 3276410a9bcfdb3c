#!/usr/bin/env python3
"""The root file systems of our images: complete, small, nothing in them that need not be there.

Usage: image_check.py REPOSITORY BUILD GTEST_REPORT. What is not built here is skipped by name. Exit 1 on a failure.
"""
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
from cases import Report, Skip, expect  # noqa: E402

LIMIT_MB = {"operator": 40, "worker": 470}
PROGRAMS = {"operator": ["dsj-operator"], "worker": ["dsj-agent", "dsj-train", "dsj", "dsj-make-quickstart"]}
# A call of each program that loads all its libraries and ends by itself, with what it then says.
PROOF = {"dsj-operator": (["--help"], ""), "dsj-agent": (["--help"], "DeepSpeedJob"), "dsj": (["--help"], "validate"),
         "dsj-make-quickstart": (["--help"], "random model"), "dsj-train": (["generate"], "--model is required")}


def image(repository, *words):
    return subprocess.run([os.path.join(repository, "scripts/image.sh"), *words], capture_output=True, text=True, check=False)


def digest(root):
    total = hashlib.sha256()
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            info = os.lstat(path)
            total.update(f"{os.path.relpath(path, root)} {info.st_mode} {info.st_mtime}".encode())
            if stat.S_ISREG(info.st_mode):
                with open(path, "rb") as file:
                    total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def bad_words(repository, _build, room):
    expect(image(repository).returncode == 2, "no words: usage and 2")
    done = image(repository, "root", "everything", room, room + "/x")
    expect(done.returncode == 2 and "everything" in done.stderr, f"an unknown target is named: {done.stderr}")
    done = image(repository, "root", "operator", room, room + "/x")
    expect(done.returncode == 2 and "dsj-operator is not built" in done.stderr, f"what is missing is named: {done.stderr}")


def contents(root, target):
    """/opt/dsj/sbom.spdx.json lists every other file, with its checksum, in one package that has a name and a version."""
    with open(os.path.join(root, "opt/dsj/sbom.spdx.json"), encoding="utf-8") as file:
        document = json.load(file)
    expect(document["spdxVersion"] == "SPDX-2.3" and document["SPDXID"] == "SPDXRef-DOCUMENT", "an SPDX document")
    packages = {package["SPDXID"]: package for package in document["packages"]}
    identifiers = list(packages) + [file["SPDXID"] for file in document["files"]]
    expect(len(set(identifiers)) == len(identifiers), "an identifier is given twice")
    expect(all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", one) for one in identifiers), f"identifiers: {identifiers}")
    of = {}
    for link in document["relationships"]:
        if link["relationshipType"] == "CONTAINS":
            expect(link["relatedSpdxElement"] not in of, f"{link['relatedSpdxElement']} is in two packages")
            of[link["relatedSpdxElement"]] = packages[link["spdxElementId"]]
    listed = {}
    for file in document["files"]:
        path = os.path.join(root, file["fileName"])
        listed[os.path.normpath(path)] = of[file["SPDXID"]]["name"]
        for sum_ in file["checksums"]:
            with open(path, "rb") as data:
                expect(hashlib.file_digest(data, sum_["algorithm"].lower()).hexdigest() == sum_["checksumValue"], file["fileName"])
    there = {os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names
             if not os.path.islink(os.path.join(folder, name))}
    expect(there - {os.path.join(root, "opt/dsj/sbom.spdx.json")} == set(listed), f"not listed or not there: {there ^ set(listed)}")
    named = {os.path.relpath(path, root): name for path, name in listed.items()}
    expect(named["lib/x86_64-linux-gnu/libc.so.6"].startswith("libc6"), named)
    expect(named[f"opt/dsj/bin/{PROGRAMS[target.removesuffix('-cuda')][0]}"] == "DeepSpeedJob-" + target, named)
    if target.startswith("worker"):
        expect(named["lib/x86_64-linux-gnu/libtorch_cpu.so"] == "torch", named)
        expect(named.get("lib/x86_64-linux-gnu/libcudart.so.13", "nvidia-cuda-runtime") == "nvidia-cuda-runtime", named)
    print(f"result: sbom {target}: {len(listed)} files of {len(packages)} packages")


def unknown_contents(repository, _build, room):
    """A file that no package has is named, and there is no list."""
    root, record = os.path.join(room, "root"), os.path.join(room, "sources")
    os.makedirs(root)
    for name in ("libstrange.so", "libnccl.so.2"):
        with open(os.path.join(root, name), "wb") as file:
            file.write(b"x")
    with open(record, "w", encoding="utf-8") as file:
        file.write(f"libstrange.so\t{room}/libstrange.so\nlibnccl.so.2\t{room}/libnccl.so.2\n")
    done = subprocess.run([os.path.join(repository, "scripts/sbom.py"), "worker", root, record], capture_output=True, text=True,
                          check=False)
    expect(done.returncode == 1 and "libstrange.so" in done.stderr and "libnccl" not in done.stderr, done.stderr)
    expect("pkg:pypi/nvidia-nccl-cu13@" in done.stdout, done.stdout)


def root_of(target):
    def check(repository, build, room):
        for program in PROGRAMS[target]:
            if not os.access(os.path.join(build, "bin", program), os.X_OK):
                raise Skip(f"{program} is not built here")
        root = os.path.join(room, "root")
        done = image(repository, "root", target, build, root)
        expect(done.returncode == 0, done.stderr)
        size = sum(os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(root) for name in names) / 1e6
        print(f"result: image {target}: {size:.1f} MB (limit {LIMIT_MB[target]})")
        expect(size < LIMIT_MB[target], f"{size:.1f} MB")
        for folder, _, names in os.walk(root):
            for name in names:
                mode = os.lstat(os.path.join(folder, name)).st_mode
                expect(not mode & (stat.S_ISUID | stat.S_ISGID), f"{name} has a set-id bit")
                expect(stat.S_ISLNK(mode) or not mode & stat.S_IWOTH, f"{name} can be written by everybody")
                expect(name not in ("sh", "bash", "busybox"), f"a shell: {name}")
        contents(root, target)
        first = digest(root)
        expect(image(repository, "root", target, build, root).returncode == 0, "again")
        expect(digest(root) == first, "the same programs give the same files")
        if os.geteuid() != 0:
            raise Skip("only root may chroot: the programs were not started in it")
        for program in PROGRAMS[target]:
            words, says = PROOF[program]
            done = subprocess.run(["chroot", "--userspec=65532:65532", root, "/opt/dsj/bin/" + program, *words],
                                  capture_output=True, text=True, check=False, env={"PATH": "/opt/dsj/bin:/usr/bin:/bin:/usr/sbin"})
            expect(done.returncode in (0, 2) and says in done.stdout + done.stderr,
                   f"{program} in its root: {done.returncode} {done.stdout}{done.stderr}")
    return check


def archive(repository, build, room):
    """The same bytes twice; every blob is named by its digest; the layer has the root's files; other tools read it."""
    if not os.path.exists(os.path.join(build, "bin/dsj-operator")):
        raise Skip("dsj-operator is not built here")
    paths = [os.path.join(room, name) for name in ("first.tar", "second.tar")]
    for path in paths:
        done = image(repository, "build", "operator", build, "dsj-operator:1", path)
        expect(done.returncode == 0, done.stderr)
    told = re.search("sha256:[0-9a-f]{64}", done.stdout)[0]
    with open(paths[0], "rb") as first, open(paths[1], "rb") as second:
        expect(first.read() == second.read(), "the same build gave two archives")
    with tarfile.open(paths[0]) as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar.getmembers()}
    for name, data in files.items():
        if name.startswith("blobs/sha256/"):
            expect(hashlib.sha256(data).hexdigest() == name.removeprefix("blobs/sha256/"), name)

    def blob(digest):
        return files["blobs/" + digest.replace(":", "/")]

    found = json.loads(files["index.json"])["manifests"][0]
    expect(found["digest"] == told, f"{found['digest']}, and image.sh said {told}")
    expect(found["annotations"]["io.containerd.image.name"] == "docker.io/library/dsj-operator:1", found)
    manifest = json.loads(blob(found["digest"]))
    config = json.loads(blob(manifest["config"]["digest"]))
    expect(config["config"]["User"] == "65532:65532" and config["config"]["Entrypoint"] == ["/opt/dsj/bin/dsj-operator"], config)
    plain = gzip.decompress(blob(manifest["layers"][0]["digest"]))
    expect("sha256:" + hashlib.sha256(plain).hexdigest() == config["rootfs"]["diff_ids"][0], "the layer's digest, unpacked")
    root, unpacked = os.path.join(room, "root"), os.path.join(room, "unpacked")
    expect(image(repository, "root", "operator", build, root).returncode == 0, "the root")
    with tarfile.open(fileobj=io.BytesIO(plain)) as layer:
        expect(all(member.uid == member.gid == 0 for member in layer.getmembers()), "owners")
        layer.extraction_filter = getattr(tarfile, "fully_trusted_filter", lambda member, _: member)  # Python 3.11.2 has none
        layer.extractall(unpacked)
    shutil.copystat(root, unpacked)
    expect(digest(root) == digest(unpacked), "the layer is not the root")
    if not shutil.which("buildah"):
        raise Skip("buildah is not here: no other tool read the archive")
    storage = ["--storage-driver", "vfs", "--root", os.path.join(room, "storage"), "--runroot", os.path.join(room, "run")]
    for form in ("oci-archive", "docker-archive"):
        done = subprocess.run(["buildah", *storage, "pull", "-q", f"{form}:{paths[0]}"], capture_output=True, text=True, check=False)
        expect(done.returncode == 0, f"{form}: {done.stderr}")
    done = subprocess.run(["buildah", *storage, "images", "--format", "{{.Name}}:{{.Tag}}"], capture_output=True, text=True, check=False)
    expect("docker.io/library/dsj-operator:1" in done.stdout.split(), done.stdout)


def image_with(runtime, repository, *words):
    return subprocess.run([os.path.join(repository, "scripts/image.sh"), *words], capture_output=True, text=True, check=False,
                          env={**os.environ, "DSJ_CUDA_RUNTIME": runtime})


def worker_for_gpus(repository, build, room):
    """Refused without the 2.3 GB of CUDA's libraries; assembled of empty ones with their names."""
    for name in PROGRAMS["worker"] + ["libdsj_cuda.so"]:
        if not os.path.exists(os.path.join(build, "bin", name)):
            raise Skip(f"{name} is not built here")
    root, runtime = os.path.join(room, "root"), os.path.join(room, "runtime")
    done = image_with(runtime, repository, "root", "worker-cuda", build, root)
    expect(done.returncode == 2 and "DSJ_SETUP_CUDA=runtime scripts/setup.sh" in done.stderr and "2.7 GB" in done.stderr,
           f"what is missing, how to get it, and how large the image is: {done.stderr}")
    expect(not os.path.exists(root), "nothing is made")
    stubs = os.path.join(build, "cuda/stubs")
    os.makedirs(os.path.join(runtime, "nvidia/nccl/lib"))
    names = sorted(os.listdir(stubs))
    for name in names[1:]:
        shutil.copy(os.path.join(stubs, name), os.path.join(runtime, "nvidia/nccl/lib", name))
    done = image_with(runtime, repository, "root", "worker-cuda", build, root)
    expect(done.returncode == 2 and names[0] in done.stderr, f"the library that is missing is named: {done.stderr}")
    shutil.copy(os.path.join(stubs, names[0]), runtime)
    done = image_with(runtime, repository, "root", "worker-cuda", build, root)
    expect(done.returncode == 0, done.stderr)
    print(f"result: {done.stdout.strip()} without the contents of CUDA's libraries")
    for name in ["opt/dsj/bin/libdsj_cuda.so", *("lib/x86_64-linux-gnu/" + name for name in names)]:
        expect(os.path.exists(os.path.join(root, name)), f"{name} is in the image")
    expect(not os.path.exists(os.path.join(root, "lib/x86_64-linux-gnu/libcuda.so.1")), "the driver is the host's")


# What an image for GPUs is made of, by how the names of its libraries begin.
PARTS = {"libtorch": ("libtorch", "libc10"), "cuBLAS": ("libcublas",), "cuFFT": ("libcufft",), "cuSPARSELt": ("libcusparseLt",),
         "NCCL": ("libnccl",), "cuSPARSE": ("libcusparse.", "libnvJitLink"), "cuRAND": ("libcurand",), "NVRTC": ("libnvrtc",),
         "NVSHMEM": ("libnvshmem",), "Arrow": ("libarrow", "libparquet"), "cuDNN": ("libcudnn",), "other libraries of CUDA": ("libcu",)}
# Nothing of the engine opens these (docs/gpu.md): they would be 550 MB.
UNREACHED = ("libcudnn_", "libtorch_cuda_linalg", "nvshmem_transport", "libcufftw", "libnvblas")


def parts_of(root):
    """{part: MB} of an image."""
    sizes = dict.fromkeys([*PARTS, "the rest"], 0.0)
    for folder, _, names in os.walk(root):
        for name in names:
            part = next((one for one, begins in PARTS.items() if name.startswith(begins)), "the rest")
            sizes[part] += os.lstat(os.path.join(folder, name)).st_size / 1e6
    return sizes


def undefined(library, root, program):
    """Symbols of a library of the image that neither the image nor the program that opens it has. All are looked up at once."""
    folder = os.path.join(root, "lib/x86_64-linux-gnu")
    said = subprocess.run(["ldd", "-r", library], capture_output=True, text=True, check=False,
                          env={"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": folder, "LD_BIND_NOW": "1"})
    expect("not found" not in said.stdout, said.stdout)
    there = subprocess.run(["nm", "-D", "--defined-only", program], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"undefined symbol: (\S+)", said.stdout + said.stderr)) - {line.split()[-1] for line in there.splitlines()}


# The process's own files and devices, as a container runtime gives them.
IN_ROOT = """mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot --userspec=65532:65532 "$0" "$@" """


def inside(root, *words, **variables):
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", IN_ROOT, root, *words],
                          capture_output=True, text=True, check=False, env={"PATH": "/opt/dsj/bin:/usr/sbin:/usr/bin:/bin", **variables})
    return done.returncode, done.stdout + done.stderr


def losses_of(folder):
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        return [json.loads(line)["loss"] for line in file]


def a_job(build, folder):
    """Makes a small model and rows in `folder`. Returns a function: the job, as seen from where `folder` is called `at`."""
    sys.path.insert(0, os.path.join(HERE, "../../scripts/gpu_prove_parts"))
    import jobs
    machine = types.SimpleNamespace(work=folder, program=lambda name: os.path.join(build, "bin", name),
                                    run=lambda *words: subprocess.run(words, check=True, capture_output=True))
    model, rows = jobs.make_model(machine, "small"), jobs.make_rows(machine, 16, (24, 60), 2048)

    def written(name, at, device):
        job = jobs.job(os.path.join(at, os.path.basename(model)), os.path.join(at, os.path.basename(rows)),
                       os.path.join(at, "out-" + name), device=device, slots=2, steps=3, precision="fp32")
        os.mkdir(os.path.join(folder, "out-" + name))
        os.chmod(os.path.join(folder, "out-" + name), 0o777)
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as file:
            json.dump(job, file)
        return os.path.join(at, name + ".json")
    return written


def worker_for_gpus_with_cudas_libraries(repository, build, room):
    """With the real libraries, where they have been fetched: nothing is missing, nothing is there for nobody; the CPU still
    trains, to the same losses; and what happens without a driver is said."""
    runtime = os.environ.get("DSJ_CUDA_RUNTIME") or os.path.join(
        os.environ.get("DSJ_CACHE") or os.path.expanduser("~/.cache/dsj"), "cuda-runtime-2.11.0-2")
    if not os.path.exists(os.path.join(runtime, ".complete")):
        raise Skip(f"CUDA's run-time libraries are not in {runtime}: NOT RUN (DSJ_SETUP_CUDA=runtime scripts/setup.sh fetches 2.3 GB)")
    for name in [*PROGRAMS["worker"], "libdsj_cuda.so", "dsj-make-model", "../fake_driver/libcuda.so.1"]:
        if not os.path.exists(os.path.join(build, "bin", name)):
            raise Skip(f"{name} is not built here")
    if shutil.disk_usage(room).free < 4e9:
        raise Skip(f"NOT RUN: the image takes 2.7 GB, and {room} has no 4 GB left")
    root = os.path.join(room, "root")
    done = image_with(runtime, repository, "root", "worker-cuda", build, root)
    expect(done.returncode == 0, done.stderr)
    sizes = parts_of(root)
    print(f"result: image worker-cuda: {sum(sizes.values()):.0f} MB: "
          + ", ".join(f"{part} {size:.0f}" for part, size in sorted(sizes.items(), key=lambda one: -one[1])))
    expect(sum(sizes.values()) < 2850, sizes)
    libraries = os.listdir(os.path.join(root, "lib/x86_64-linux-gnu"))
    expect(not [name for name in libraries if name.startswith(UNREACHED)], f"nobody asks for some of {sorted(libraries)}")
    expect("libnvrtc.so.13" in libraries, "cuBLASLt opens it")
    contents(root, "worker-cuda")
    for library in ("opt/dsj/bin/libdsj_cuda.so", "lib/x86_64-linux-gnu/libtorch_cuda.so"):
        missing = undefined(os.path.join(root, library), root, os.path.join(build, "bin/dsj-train"))
        expect(not missing, f"{library}: nobody has {sorted(missing)[:10]}")
    there = os.path.join(root, "tmp/work")
    os.mkdir(there)
    written = a_job(build, there)
    if os.geteuid() != 0 or inside(root, "/opt/dsj/bin/dsj", "--help")[0] != 0:
        raise Skip("only root may mount and chroot: nothing was started in it")
    driver = os.path.join(there, "driver")
    os.mkdir(driver)
    shutil.copy(os.path.join(build, "fake_driver/libcuda.so.1"), driver)
    # A driver that shows two GPUs and can do nothing else: dsj-train opens the plugin and all of CUDA's libraries.
    code, said = inside(root, "/opt/dsj/bin/dsj", "run", written("gpu", "/tmp/work", "cuda"), FAKE_GPUS="2",
                        LD_LIBRARY_PATH="/tmp/work/driver")
    unusable = re.search(r"GPU [01] cannot be used: .*", said)  # who of the two ranks is first
    expect(code == 3 and unusable, f"{code} {said}")
    print("result: image worker-cuda: " + unusable[0])
    code, said = inside(root, "/opt/dsj/bin/dsj", "run", written("none", "/tmp/work", "cuda"))
    expect(code == 1 and "the job asks for GPUs, and no CUDA driver (libcuda.so.1) is here" in said, f"{code} {said}")
    code, said = inside(root, "/opt/dsj/bin/dsj", "run", written("cpu", "/tmp/work", "auto"))
    expect(code == 0, f"{code} {said}")
    done = subprocess.run([os.path.join(build, "bin/dsj"), "run", written("outside", there, "auto")], capture_output=True, text=True,
                          check=False)
    expect(done.returncode == 0, done.stderr)
    want, got = losses_of(os.path.join(there, "out-outside")), losses_of(os.path.join(there, "out-cpu"))
    expect(len(want) == 3 and got == want, f"{got} in the image, {want} outside")


def main():
    repository, build, report = sys.argv[1], sys.argv[2], Report("Image", sys.argv[3])
    for name, check in (("BadWords", bad_words), ("UnknownContents", unknown_contents), ("Operator", root_of("operator")), ("Archive", archive),
                        ("Worker", root_of("worker")), ("WorkerForGpus", worker_for_gpus),
                        ("WorkerForGpusWithCudasLibraries", worker_for_gpus_with_cudas_libraries)):
        with tempfile.TemporaryDirectory() as room:
            report.run(name, lambda check=check, room=room: check(repository, build, room))
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
