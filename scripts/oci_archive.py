#!/usr/bin/env python3
"""Packs a root file system as an image archive for docker, podman, containerd, kind and skopeo.

Usage: oci_archive.py ROOT NAME:TAG ARCHIVE --entrypoint PROGRAM [--user N] [--env K=V]... [--created SECONDS]
Prints the digest of the image's manifest. The archive is an OCI layout (image-spec 1.1) with one layer, and also has the
manifest.json of `docker save` for the same blobs. The same ROOT gives the same bytes: owners are 0, times are those of the
files, and --created sets the image's time (default 0).
"""
import argparse
import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
import tempfile
import time

OCI = "application/vnd.oci.image."


class Hashing:
    """Forwards writes, and hashes them."""

    def __init__(self, to):
        self.to, self.sum, self.size = to, hashlib.sha256(), 0

    def write(self, data):
        self.sum.update(data)
        self.size += len(data)
        return self.to.write(data)

    def digest(self):
        return "sha256:" + self.sum.hexdigest()


def files_of(root):
    """Paths below root, each folder before its contents."""
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(folders + names):
            yield os.path.join(folder, name)


def write_layer(root, file):
    """Writes the files as a gzipped tar; returns the digests of the tar and of the gzip file, and the size of the latter."""
    packed = Hashing(file)
    with gzip.GzipFile("", "wb", 6, packed, mtime=0) as compressor:
        plain = Hashing(compressor)
        with tarfile.open(fileobj=plain, mode="w|", format=tarfile.PAX_FORMAT) as layer:
            for path in sorted(files_of(root)):
                info = layer.gettarinfo(path, os.path.relpath(path, root))
                info.uid = info.gid = 0
                info.uname = info.gname = ""
                if info.islnk():  # store each file separately
                    info.type, info.size = tarfile.REGTYPE, os.path.getsize(path)
                if not info.isreg():
                    layer.addfile(info)
                    continue
                with open(path, "rb") as content:
                    layer.addfile(info, content)
    return plain.digest(), packed.digest(), packed.size


class Archive:
    """The archive's tar; blobs are added by digest."""

    def __init__(self, file, moment):
        self.tar, self.moment = tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT), moment

    def add(self, name, size, content):
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = size, self.moment, 0o644
        self.tar.addfile(info, content)

    def add_document(self, name, document):
        data = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
        self.add(name, len(data), io.BytesIO(data))

    def add_blob(self, document):
        data = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        self.add("blobs/" + digest.replace(":", "/"), len(data), io.BytesIO(data))
        return {"digest": digest, "size": len(data)}


def write_archive(root, name, path, configuration, created=0):
    """Writes the archive; returns the digest of its manifest. configuration: the image-spec's "config"."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(created))
    with tempfile.TemporaryFile(dir=os.path.dirname(os.path.abspath(path))) as layer, open(path + ".new", "wb") as file:
        plain, packed, size = write_layer(root, layer)
        layer.seek(0)
        archive = Archive(file, created)
        blob = "blobs/" + packed.replace(":", "/")
        archive.add(blob, size, layer)
        config = archive.add_blob({"architecture": "amd64", "os": "linux", "created": moment, "config": configuration,
                                   "rootfs": {"type": "layers", "diff_ids": [plain]},
                                   "history": [{"created": moment, "created_by": "scripts/image.sh"}]})
        manifest = archive.add_blob({"schemaVersion": 2, "mediaType": OCI + "manifest.v1+json",
                                     "config": {"mediaType": OCI + "config.v1+json", **config},
                                     "layers": [{"mediaType": OCI + "layer.v1.tar+gzip", "digest": packed, "size": size}]})
        tag = name.rpartition(":")[2]
        archive.add_document("index.json", {
            "schemaVersion": 2, "mediaType": OCI + "index.v1+json",
            "manifests": [{"mediaType": OCI + "manifest.v1+json", **manifest,
                           "platform": {"architecture": "amd64", "os": "linux"},
                           "annotations": {"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": full(name)}}]})
        archive.add_document("oci-layout", {"imageLayoutVersion": "1.0.0"})
        archive.add_document("manifest.json", [{"Config": "blobs/" + config["digest"].replace(":", "/"), "RepoTags": [name],
                                                "Layers": [blob]}])
        archive.tar.close()
    os.replace(path + ".new", path)
    return manifest["digest"]


def full(name):
    """A name in containerd's form: dsj-worker:1 becomes docker.io/library/dsj-worker:1."""
    first = name.split("/")[0]
    if "/" in name and ("." in first or ":" in first or first == "localhost"):
        return name
    return "docker.io/" + (name if "/" in name else "library/" + name)


def main():
    parser = argparse.ArgumentParser(usage="\n".join(__doc__.splitlines()[2:3]).removeprefix("Usage: "))
    parser.add_argument("root")
    parser.add_argument("name")
    parser.add_argument("archive")
    parser.add_argument("--entrypoint", required=True)
    parser.add_argument("--user", default="")
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--created", type=int, default=0)
    words = parser.parse_args()
    if ":" not in words.name.rpartition("/")[2]:
        parser.error(f"{words.name} has no tag")
    configuration = {"Entrypoint": [words.entrypoint], "Env": words.env, "WorkingDir": "/tmp"}
    if words.user:
        configuration["User"] = words.user
    print(write_archive(words.root, words.name, words.archive, configuration, words.created))
    return 0


if __name__ == "__main__":
    sys.exit(main())
