"""Images without a registry: archives that every node loads. An image NAME:TAG is localhost/NAME:TAG in pods, with
imagePullPolicy Never or IfNotPresent."""
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile

from settings import CACHE, HERE, STATE, ClusterError

FOLDER = os.path.join(STATE, "images")


def _add(archive, name, data):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o755
    archive.addfile(entry, io.BytesIO(data))


def _one_program(path, program, name):
    """A docker archive of an image that has one static program and runs it."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as files, open(program, "rb") as source:
        _add(files, "program", source.read())
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Entrypoint": ["/program"]},
                         "rootfs": {"type": "layers", "diff_ids": ["sha256:" + digest]}}).encode()
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as archive:
        _add(archive, "layer.tar", layer.getvalue())
        _add(archive, "config.json", config)
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def pause():
    """What containerd puts into every sandbox."""
    target = os.path.join(FOLDER, "pause.tar")
    if os.path.exists(target):
        return
    os.makedirs(FOLDER, exist_ok=True)
    with tempfile.TemporaryDirectory() as staging:
        program = os.path.join(staging, "pause")
        subprocess.run(["gcc", "-static", "-Os", "-s", "-o", program, os.path.join(HERE, "pause.c")], check=True)
        _one_program(target, program, "localhost/pause:1")


def build(name, folder):
    """FOLDER/Dockerfile as localhost/NAME, by buildah; returns the archive."""
    buildah = ["buildah", "--root", os.path.join(CACHE, "buildah"), "--runroot", os.path.join(CACHE, "buildah-run"),
               "--storage-driver", os.environ.get("DSJ_STORAGE_DRIVER", "overlay")]
    archive = os.path.join(CACHE, "images", name.replace("/", "_").replace(":", "_") + ".tar")
    os.makedirs(os.path.dirname(archive), exist_ok=True)
    if os.path.exists(archive):
        os.remove(archive)
    for words in (["bud", "-q", "--isolation", "chroot", "--network", "host", "--pull-never", "-t", f"localhost/{name}",
                   folder], ["push", "-q", f"localhost/{name}", f"docker-archive:{archive}:localhost/{name}"]):
        if subprocess.run([*buildah, *words], check=False).returncode != 0:
            raise ClusterError(f"buildah {words[0]} of {name} failed")
    return archive


def keep(archive):
    """For nodes to come, too; returns its place."""
    os.makedirs(FOLDER, exist_ok=True)
    target = os.path.join(FOLDER, os.path.basename(archive))
    shutil.copyfile(archive, target)
    return target


def kept():
    return sorted(os.path.join(FOLDER, name) for name in os.listdir(FOLDER)) if os.path.isdir(FOLDER) else []
