"""Programs under a user that no password file has, in group 0, without HOME and without rights, as OpenShift's restricted-v2 runs a
container."""
import os
import pwd
import random
import shlex
import shutil
import subprocess

from cases import Skip

SHOWN = "/mnt"


class Stranger:
    """It sees SHOWN, a place that every user may enter: of its own mount namespace, so that no folder above the checkout, the binaries
    or the temporary files needs to be open to strangers. shown: folders by their name there."""

    def __init__(self, shown):
        known = {entry.pw_uid for entry in pwd.getpwall()}
        # Of the range that OpenShift gives a namespace.
        self.uid = next(uid for uid in iter(lambda: random.randrange(1_000_000_000, 1_001_000_000), None) if uid not in known)
        self.shown = shown

    def command(self, room):
        """The words before a program's own. room: the name of the folder that it starts in. Skips where nobody can become that user."""
        if os.geteuid() != 0 or not shutil.which("setpriv"):
            raise Skip("needs root and setpriv, to become another user")
        if subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", SHOWN], capture_output=True, check=False).returncode:
            raise Skip("needs a mount namespace of its own")
        mounts = f"mount -t tmpfs -o mode=755 none {SHOWN} && "
        for name, folder in self.shown.items():
            mounts += f"mkdir {SHOWN}/{name} && mount --bind {shlex.quote(folder)} {SHOWN}/{name} && "
        return ["unshare", "--mount", "sh", "-c", mounts + f'cd {SHOWN}/{room} && exec "$0" "$@"', "setpriv", f"--reuid={self.uid}", "--regid=0",
                "--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]

    @staticmethod
    def environment(**more):
        """No HOME."""
        return {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", **more}
