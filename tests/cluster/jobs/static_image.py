"""Images from scratch with one static program of C, run by the user of our own images."""
import os
import tempfile

from kube import run
from world import USER

HERE = os.path.dirname(os.path.abspath(__file__))


def static_image(name, source, cluster):
    """A file of this folder as /program of localhost/NAME, on every node. cluster: the path of cluster.py."""
    with tempfile.TemporaryDirectory() as room:
        run("gcc", "-std=gnu17", "-static", "-Os", "-s", "-Wall", "-Werror", "-o", f"{room}/program",
            os.path.join(HERE, source))
        with open(f"{room}/Dockerfile", "w", encoding="ascii") as file:
            file.write(f"FROM scratch\nCOPY program /program\nUSER {USER}:{USER}\nENTRYPOINT [\"/program\"]\n")
        run(cluster, "image", name, room, timeout=1200)
