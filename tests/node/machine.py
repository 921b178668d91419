"""What this machine needs for a real node, and what of it is missing. Standard library only.

As a program it installs Debian's packages that are missing, and says in one sentence what is missing still: status 3.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "nft": "nftables",
    "ip": "iproute2",
    "conntrack": "conntrack",
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
}
"""The Debian package of each program."""
PLUGINS = Path("/usr/lib/cni")
"""Where Debian's containernetworking-plugins are."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MISSING = 3
"""The status of who lacks something."""
SECONDS = 300.0
"""What anything may take here that is waited for: machines are busy, and what an idle one takes is a figure."""
NAMESPACES = ("--net", "--mount", "--pid", "--uts", "--fork", "--mount-proc", "--kill-child")
_TRIED = "d=$(mktemp -d) && mount -t tmpfs tmpfs $d && mkdir $d/1 $d/2 $d/3 $d/4 && mount -t overlay overlay -o lowerdir=$d/1,upperdir=$d/2,workdir=$d/3 $d/4; s=$?; umount -l $d; rmdir $d; exit $s"


def packages() -> list[str]:
    """Return the names of all packages, for apt-get."""
    return sorted({*PACKAGES.values(), "containernetworking-plugins"})


def _lacking() -> set[str]:
    """Return the packages of which something isn't there."""
    lacking = {package for program, package in PACKAGES.items() if shutil.which(program, path=PATH) is None}
    return lacking | (set() if (PLUGINS / "bridge").exists() else {"containernetworking-plugins"})


def missing() -> str:
    """Return what this machine lacks and how to mend it, in one sentence; nothing if it has all."""
    if os.geteuid() != 0:
        return "a real node needs root: it makes namespaces and mounts"
    if lacking := _lacking():
        return f"a real node needs packages that aren't installed: apt-get install --no-install-recommends {' '.join(sorted(lacking))}"
    if not Path("/sys/fs/cgroup/memory").is_dir():
        return "a real node needs the hierarchies of cgroup v1 in /sys/fs/cgroup, which this machine hasn't; elsewhere there is make kind"
    tried = subprocess.run(["unshare", *NAMESPACES, "sh", "-c", _TRIED], capture_output=True, text=True, check=False)
    if tried.returncode:
        said = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
        return f"a real node needs namespaces and overlayfs, which this machine refuses ({said}); elsewhere there is make kind"
    return ""


def install() -> None:
    """Install the packages that are missing, where this machine can; `missing` tells where it couldn't."""
    if os.geteuid() != 0 or shutil.which("apt-get", path=PATH) is None or not _lacking():
        return
    quietly = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "--yes", "--no-install-recommends", *packages()]):
        subprocess.run(["apt-get", "-qq", *words], env=quietly, stdout=subprocess.DEVNULL, check=False)


def main() -> int:
    """Install, and return the status."""
    install()
    if lacking := missing():
        sys.stderr.write(f"{lacking}\n")
        return MISSING
    return 0


if __name__ == "__main__":
    sys.exit(main())
