#!/usr/bin/env python3
"""What `make dist` and `make install` make: reproducible, kept promises, and it runs where nothing else of ours is.

Usage: dist_check.py REPOSITORY BUILD GTEST_REPORT [--full]
Without --full libtorch is the cached one, put where pip would put the torch wheel's. With --full (`make test-dist`) pip
installs the wheel with all that it requires into a new environment, and the whole quickstart runs; its times are printed.
"""
import base64
import filecmp
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts"))
import dist  # noqa: E402
from cases import Report, Skip, expect  # noqa: E402

# The newest versions that the libraries of a distribution define: `readelf -V` on its libc.so.6, libstdc++.so.6, libgcc_s.so.1.
DISTRIBUTIONS = {
    "Ubuntu 22.04": ((2, 35), {"GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)}),
    "Debian 12": ((2, 36), {"GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)}),
    "Ubuntu 24.04": ((2, 39), {"GLIBCXX": (3, 4, 33), "CXXABI": (1, 3, 15), "GCC": (14, 0, 0)}),
    "Debian 13": ((2, 41), {"GLIBCXX": (3, 4, 33), "CXXABI": (1, 3, 15), "GCC": (14, 0, 0)}),
}
RPATH = "$ORIGIN/../lib:$ORIGIN/../torch/lib:$ORIGIN/../../torch/lib"
# Of other wheels, which torch's wheel is or requires.
WITH_TORCH = re.compile(r"lib(torch|c10|gomp|cudart|cupti|nccl)[a-z_]*\.so")
TINY = {"DSJ_QUICKSTART_SIZE": "tiny"}


def run(*command, code=0, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    expect(done.returncode == code, f"{' '.join(command)}: {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout + done.stderr


def clean(home, **more):
    """The environment of a user who has set nothing."""
    return {"PATH": "/usr/bin:/bin", "HOME": home, "LANG": "C.UTF-8", **more}


class Check:
    def __init__(self, repository, build, room):
        self.repository, self.build, self.room = repository, build, room
        self.wheel = ""

    def dist(self, *arguments, code=0, **environment):
        return run(sys.executable, os.path.join(self.repository, "scripts/dist.py"), *arguments, code=code,
                   env=dict(os.environ, **environment))

    def inside(self, name):
        return os.path.join(self.room, name)

    # ---- the wheel

    def same_bytes(self):
        for name in ("first", "second"):
            self.dist("wheel", self.build, self.inside(name))
        first, second = (sorted(os.listdir(self.inside(name))) for name in ("first", "second"))
        expect(first == second and len(first) == 1, f"{first} {second}")
        self.wheel = os.path.join(self.inside("first"), first[0])
        expect(filecmp.cmp(self.wheel, os.path.join(self.inside("second"), first[0]), shallow=False), "two bytes differ")
        print(f"result: {first[0]}: {os.path.getsize(self.wheel) / 1e6:.1f} MB", flush=True)

    def contents(self):
        with zipfile.ZipFile(self.wheel) as archive:
            names = archive.namelist()
            archive.extractall(self.inside("unpacked"))
            info = next(name for name in names if name.endswith(".dist-info/METADATA")).removesuffix("METADATA")
            metadata = archive.read(info + "METADATA").decode()
            record = archive.read(info + "RECORD").decode().splitlines()
            modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in archive.infolist()}
        expect(len(names) == len(set(names)) == len(record), f"{len(names)} files, {len(record)} in RECORD")
        for line in record:
            name, digest, size = line.rsplit(",", 2)
            if not name.endswith("RECORD"):
                path = os.path.join(self.inside("unpacked"), name)
                expect(os.path.getsize(path) == int(size), name)
                with open(path, "rb") as file:
                    sum_ = base64.urlsafe_b64encode(hashlib.sha256(file.read()).digest()).rstrip(b"=").decode()
                expect(digest == "sha256=" + sum_, f"{name}: {digest} in RECORD, {sum_} in the file")
        expect(f"Requires-Dist: torch=={dist.torch_version()}\n" in metadata, metadata[:500])
        for program in dist.PROGRAMS:
            expect(modes[f"deepspeedjob/bin/{program}"] == 0o755, program)
        for place in (*dist.COMPLETIONS.values(), "share/man/man1/dsj-run.1", "share/deepspeedjob/configs/finetune.yaml"):
            expect(any(name.endswith(".data/data/" + place) for name in names), f"{place} is not in the wheel")
        for name in dist.PROGRAMS:
            rpath = re.findall(r"R(?:UN)?PATH\).*\[(.*)\]", run("readelf", "-dW", os.path.join(self.inside("unpacked"),
                                                                                           "deepspeedjob/bin", name)))
            expect(rpath == [RPATH], f"{name}: {rpath}")

    def gpu_half(self):
        """It finds libtorch's other half, NCCL and CUDA where pip installs them."""
        half = os.path.join(self.inside("unpacked"), "deepspeedjob/bin", dist.GPU)
        if not os.path.exists(os.path.join(self.build, "dist/bin", dist.GPU)):
            expect(not os.path.exists(half), half)
            raise Skip(f"{dist.GPU} is not built (without CUDA's compiler): NOT RUN")
        rpath = re.findall(r"R(?:UN)?PATH\).*\[(.*)\]", run("readelf", "-dW", half))
        expect(rpath == [RPATH + ":$ORIGIN/../../nvidia/nccl/lib:$ORIGIN/../../nvidia/cu13/lib"], rpath)
        print(f"result: {dist.GPU}: {os.path.getsize(half) / 1e6:.1f} MB in the wheel", flush=True)

    def elf_files(self):
        """The programs and libraries of the wheel."""
        folder = os.path.join(self.inside("unpacked"), "deepspeedjob")
        return [os.path.join(folder, part, name) for part in ("bin", "lib") for name in sorted(os.listdir(os.path.join(folder, part)))]

    def libraries(self):
        brought = {os.path.basename(path) for path in self.elf_files()}
        for path in self.elf_files():
            for name in dist.needed(path):
                expect(name in dist.SYSTEM | brought or WITH_TORCH.match(name), f"{path} asks for {name}, which nobody brings")

    def tag(self):
        """By objdump, where dist.py takes readelf: the tag, and the distributions that have all the symbols."""
        newest = {}
        for path in self.elf_files():
            for kind, version in re.findall(r"\(?(GLIBC|GLIBCXX|CXXABI|GCC)_([0-9.]+)\)?", run("objdump", "-T", path)):
                if f"lib{kind}" != os.path.basename(path):
                    number = tuple(map(int, version.split(".")))
                    newest[kind] = max(newest.get(kind, ()), number)
        tag = re.search(r"manylinux_(\d+)_(\d+)_x86_64", self.wheel)
        glibc = int(tag[1]), int(tag[2])
        expect(newest["GLIBC"] <= glibc, f"{newest} in {tag[0]}")
        print("result: newest symbols: " + ", ".join(f"{kind}_{'.'.join(map(str, number))}" for kind, number in sorted(newest.items())),
              flush=True)
        here = tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")))
        for name, (has, others) in DISTRIBUTIONS.items():
            runs = newest["GLIBC"] <= has and all(newest.get(kind, ()) <= most for kind, most in others.items())
            print(f"result: {name}: {'has them all' if runs else 'lacks some'}", flush=True)
            expect(runs or here > (2, 36), f"{name} lacks some of {newest}, and this build was made with glibc {here}")

    def auditwheel(self):
        if not shutil.which("auditwheel"):
            raise Skip("auditwheel is not on PATH (pip install auditwheel); `make test-dist` installs it")
        said = " ".join(run("auditwheel", "show", self.wheel).split())
        tag = re.search(r"manylinux_\d+_\d+_x86_64", self.wheel)[0]
        expect(f'constrains the platform tag to "{tag}"' in said.replace("“", '"').replace("”", '"'), said)

    # ---- where it is installed

    def environment(self, name):
        """A new virtual environment with the wheel and the cached libtorch."""
        venv = self.inside(name)
        run(sys.executable, "-m", "venv", "--without-pip", venv)
        # --python: Debian's python3 has no ensurepip.
        run(sys.executable, "-m", "pip", "--python", os.path.join(venv, "bin/python"), "install", "--no-deps", "--no-index",
            "--disable-pip-version-check", self.wheel)
        return venv

    def put_torch(self, venv):
        site = run(os.path.join(venv, "bin/python"), "-c", "import sysconfig; print(sysconfig.get_path('platlib'))").strip()
        train = os.path.join(self.build, "bin/dsj-train")
        library = dist.found_libraries(train)["libtorch_cpu.so"]
        for folder in ("torch", "nvidia"):
            os.symlink(os.path.join(os.path.dirname(library), "../..", folder), os.path.join(site, folder))
        return site

    def without_torch(self):
        venv = self.environment("bare")
        home = self.inside("home")
        os.makedirs(home, exist_ok=True)
        said = run(os.path.join(venv, "bin/dsj"), "--version", env=clean(home))
        expect(said.startswith("dsj "), said)
        said = run(os.path.join(venv, "bin/dsj"), "quickstart", os.path.join(home, "q"), env=clean(home, **TINY), code=3)
        expect("libtorch_cpu.so" in said and "pip install torch" in said, said)

    def in_an_environment(self):
        venv = self.environment("venv")
        site = self.put_torch(venv)
        home = self.inside("home")
        os.makedirs(home, exist_ok=True)
        bin_ = os.path.join(venv, "bin")
        for program in ("dsj", "dsj-agent", "dsj-train"):
            said = run(os.path.join(bin_, program), "--version", env=clean(home))
            expect(said.startswith(program + " "), said)
        # A tool manager links from elsewhere.
        link = os.path.join(home, "dsj")
        os.symlink(os.path.join(bin_, "dsj"), link)
        run(link, "--version", env=clean(home))
        loaded = run("ldd", os.path.join(site, "deepspeedjob/bin/dsj-train"), env=clean(home))
        for name, path in re.findall(r"^\t(\S+) => (/\S+) ", loaded, re.MULTILINE):
            expect(name in dist.SYSTEM or os.path.normpath(path).startswith(site), f"{name} is {path}")
        said = run(os.path.join(bin_, "dsj"), "quickstart", os.path.join(home, "quickstart"), env=clean(home, **TINY), code=1)
        expect("first loss after" in said, said[-2000:])
        expect(os.path.exists(os.path.join(home, "quickstart/run/model/model.safetensors")), said[-2000:])
        self.reads_columns(bin_, home)
        share = os.path.join(venv, "share/deepspeedjob/configs")
        expect(os.path.exists(os.path.join(share, "finetune.yaml")), share)

    def reads_columns(self, bin_, home):
        """Parquet and Arrow files, by the libraries that come along."""
        if not os.path.exists(os.path.join(self.build, "dist/bin", dist.PLUGIN)):
            print("result: NO ARROW: the packages read no Parquet file", flush=True)
            return
        rows = os.path.join(self.repository, "tests/engine/data/fixtures/columns/saved")
        settings = {"dataPath": rows, "outputDir": os.path.join(home, "columns"), "maxSteps": "2", "saveStrategy": "no",
                    "overwriteOutputDir": "true"}
        words = [word for field, value in settings.items() for word in ("--set", f"spec.training.{field}={value}")]
        said = run(os.path.join(bin_, "dsj"), "run", os.path.join(home, "quickstart/job.yaml"), *words, env=clean(home))
        with open(os.path.join(home, "columns/metrics.jsonl"), encoding="utf-8") as lines:
            steps = [json.loads(line)["step"] for line in lines if '"loss"' in line]
        expect(steps == [1, 2], said)

    # ---- a prefix

    def prefix(self):
        root, home = self.inside("root"), self.inside("home")
        os.makedirs(home, exist_ok=True)
        self.dist("install", self.build, "/opt/there", DESTDIR=root)
        bin_ = os.path.join(root, "opt/there/bin")
        self.dist("install", self.build, "/opt/there", DESTDIR=root)  # over itself
        expect(run(os.path.join(bin_, "kubectl-dsj"), "--version", env=clean(home)).startswith("dsj "), "kubectl-dsj")
        for program in dist.PROGRAMS[:3]:
            run(os.path.join(bin_, program), "--version", env=clean(home))
        loaded = run("ldd", os.path.realpath(os.path.join(bin_, "dsj-train")), env=clean(home))
        for name, path in re.findall(r"^\t(\S+) => (/\S+) ", loaded, re.MULTILINE):
            expect(name in dist.SYSTEM or os.path.normpath(path).startswith(root), f"{name} is {path}")
        with open(os.path.join(root, "opt/there/share/doc/deepspeedjob/sbom.spdx.json"), encoding="utf-8") as file:
            packages = {package["name"] for package in json.load(file)["packages"]}
        expect({"torch", "nvidia-cuda-runtime", "DeepSpeedJob-prefix"} <= packages, packages)

    def tarball(self):
        """Twice the same bytes; it runs where it is unpacked, and from the prefix that its install.sh fills."""
        home = self.inside("home")
        os.makedirs(home, exist_ok=True)
        for name in ("all", "again"):
            self.dist("all", self.build, self.inside(name))
        expect(sorted(os.listdir(self.inside("all"))) == sorted(os.listdir(self.inside("again"))), "other names")
        run("sha256sum", "--check", "--strict", os.path.join(self.inside("all"), "SHA256SUMS"), cwd=self.inside("again"))
        packed = next(name for name in os.listdir(self.inside("again")) if name.endswith(".tar.gz"))
        print(f"result: {packed}: {os.path.getsize(os.path.join(self.inside('again'), packed)) / 1e6:.1f} MB", flush=True)
        run("tar", "-xf", packed, cwd=self.inside("again"))
        folder = os.path.join(self.inside("again"), packed.removesuffix(".tar.gz"))
        run(os.path.join(folder, "bin/dsj-train"), "--version", env=clean(home))
        run(os.path.join(folder, "install.sh"), os.path.join(home, "prefix"), env=clean(home))
        run(os.path.join(home, "prefix/bin/dsj-train"), "--version", env=clean(home))

    def not_built(self):
        empty = self.inside("empty")
        os.makedirs(os.path.join(empty, "bin"), exist_ok=True)
        said = self.dist("wheel", empty, self.inside("none"), "--version", "1", code=2)
        expect("not built: dsj, dsj-agent" in said, said)
        expect(not os.listdir(self.inside("none")), "something was written")


def full(check):
    """The long form: as a user does it."""
    venv = check.inside("user")
    run(sys.executable, "-m", "venv", venv)
    pip = os.path.join(venv, "bin/pip")
    run(pip, "install", "--disable-pip-version-check", check.wheel)
    home = check.inside("home")
    os.makedirs(home, exist_ok=True)
    said = run(os.path.join(venv, "bin/dsj"), "quickstart", os.path.join(home, "full"), env=clean(home))
    print("result: " + re.search(r"time +(.*)", said)[1], flush=True)
    print(said[said.index("\nheld-out questions"):], flush=True)
    run(pip, "install", "--disable-pip-version-check", "auditwheel")
    os.environ["PATH"] = os.path.join(venv, "bin") + ":" + os.environ["PATH"]


def main():
    repository, build, path = (os.path.abspath(argument) for argument in sys.argv[1:4])
    report = Report("Dist", path)
    with tempfile.TemporaryDirectory(prefix="dsj-dist-check-") as room:
        check = Check(repository, build, room)
        report.run("NotBuilt", check.not_built)
        report.run("SameBytesTwice", check.same_bytes)
        if check.wheel:
            report.run("Contents", check.contents)
            report.run("GpuHalf", check.gpu_half)
            report.run("Libraries", check.libraries)
            report.run("Tag", check.tag)
            if "--full" in sys.argv:
                report.run("WithAllThatItRequires", lambda: full(check))
                report.run("Tarball", check.tarball)
            report.run("TagByAuditwheel", check.auditwheel)
            report.run("WithoutTorch", check.without_torch)
            report.run("InAnEnvironment", check.in_an_environment)
        report.run("Prefix", check.prefix)
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
