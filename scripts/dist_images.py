#!/usr/bin/env python3
"""Makes what a cluster needs from a build: images as OCI archives with their SBOMs, and the chart.

Usage: dist_images.py BUILD DIRECTORY [--version V]
  dsj-operator-V.oci.tar, dsj-worker-V.oci.tar, kubectl-dsj-V.oci.tar; dsj-worker-V-cuda.oci.tar if CUDA's libraries are
  there (scripts/image.sh); for each also NAME.spdx.json
  deepspeedjob-V.tgz       the chart; its annotation artifacthub.io/images contains the images' digests
  image-digests.yaml       values for the chart, so that images are pulled by digest
  SHA256SUMS               of every file in DIRECTORY
The same build gives the same bytes: times are SOURCE_DATE_EPOCH, by default the commit's time. V and exit codes: see
dist.py.
"""
import argparse
import gzip
import io
import os
import re
import sys
import tarfile

import dist

IMAGES = {"dsj-operator": "operator", "dsj-worker": "worker", "kubectl-dsj": "cli"}  # name: image.sh's target
CHART = os.path.join(dist.SOURCE, "charts/deepspeedjob")


def semver(version):
    """Converts PEP 440's 0.1.0.dev0+gCOMMIT to SemVer's 0.1.0-dev.gCOMMIT, for helm and for tags, which must not contain +."""
    return version.replace(".dev0+", "-dev.")


def make_image(build, directory, name, target, tag):
    """Writes an archive and its SBOM; returns its digest."""
    path = os.path.join(directory, f"{name}-{tag}.oci.tar")
    said = dist.run(os.path.join(dist.HERE, "image.sh"), "build", target, build, f"{name}:{tag}", path,
                    env=dict(os.environ, SOURCE_DATE_EPOCH=str(dist.epoch())))
    print(said.strip(), flush=True)
    with tarfile.open(path) as archive:
        layer = max(archive.getmembers(), key=lambda member: member.size)
        with tarfile.open(fileobj=archive.extractfile(layer), mode="r:gz") as files:
            listed = files.extractfile("opt/dsj/sbom.spdx.json").read()
    with open(os.path.join(directory, f"{name}-{tag}.spdx.json"), "wb") as file:
        file.write(listed)
    return re.search(r"sha256:[0-9a-f]{64}", said)[0]


def chart_files(version, images):
    """Returns {path in the package: bytes}. images: {name:tag: digest}"""
    files = {}
    for folder, folders, names in os.walk(CHART, followlinks=True):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                files[os.path.join("deepspeedjob", os.path.relpath(path, CHART))] = file.read()
    about = files["deepspeedjob/Chart.yaml"].decode()
    about = re.sub(r"^(version|appVersion): .*$", lambda line: f"{line[1]}: {version}", about, flags=re.MULTILINE)
    listed = "".join(f"    - name: {name.split(':')[0]}\n      image: {name}@{digest}\n" for name, digest in images.items())
    files["deepspeedjob/Chart.yaml"] = (about + "  artifacthub.io/images: |\n" + listed).encode()
    return files


def package_chart(directory, version, images):
    """Like `helm package`, but reproducible."""
    path = os.path.join(directory, f"deepspeedjob-{version}.tgz")
    with open(path + ".new", "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        # helm reads Chart.yaml first
        for place, data in sorted(chart_files(version, images).items(), key=lambda item: (not item[0].endswith("b/Chart.yaml"), item)):
            info = tarfile.TarInfo(place)
            info.size, info.mode, info.mtime = len(data), 0o644, dist.epoch()
            archive.addfile(info, io.BytesIO(data))
    os.replace(path + ".new", path)
    return path


def write_values(directory, images):
    """Values with the digests of the chart's two images."""
    lines = ["# helm install ... -f image-digests.yaml --set image.operator.repository=REGISTRY/dsj-operator,...\n", "image:\n"]
    for name, digest in images.items():
        if name.startswith(("dsj-operator:", "dsj-worker:")) and not name.endswith("-cuda"):
            lines.append(f"  {name.split(':')[0].removeprefix('dsj-')}: {{digest: \"{digest}\"}}\n")
    with open(os.path.join(directory, "image-digests.yaml"), "w", encoding="utf-8") as file:
        file.writelines(lines)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.splitlines()[2].removeprefix("Usage: "))
    parser.add_argument("build")
    parser.add_argument("directory")
    parser.add_argument("--version")
    options = parser.parse_args()
    os.makedirs(options.directory, exist_ok=True)
    version = semver(options.version or dist.version_of(options.build))
    wanted = [(name, target, version) for name, target in IMAGES.items()]
    if dist.run(os.path.join(dist.HERE, "image.sh"), "runtime").strip():
        wanted.append(("dsj-worker", "worker-cuda", version + "-cuda"))
    else:
        print("dist: the image for GPUs is left out: DSJ_SETUP_CUDA=runtime scripts/setup.sh fetches what it needs")
    images = {f"{name}:{tag}": make_image(options.build, options.directory, name, target, tag) for name, target, tag in wanted}
    path = package_chart(options.directory, version, images)
    write_values(options.directory, images)
    dist.write_sums(options.directory)
    print(f"dist: {path}: {os.path.getsize(path) / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
