"""What this machine needs for a real node, and what of it is missing. Standard library only."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "conntrack": "conntrack",
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
}
"""The Debian package of each program."""
PLUGINS = Path("/usr/lib/cni")
"""Where Debian's containernetworking-plugins are."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NAMESPACES = ("--net", "--mount", "--pid", "--uts", "--fork", "--mount-proc", "--kill-child")
_TRIED = "d=$(mktemp -d) && mount -t tmpfs tmpfs $d && mkdir $d/1 $d/2 $d/3 $d/4 && mount -t overlay overlay -o lowerdir=$d/1,upperdir=$d/2,workdir=$d/3 $d/4; s=$?; umount -l $d; rmdir $d; exit $s"


def packages() -> list[str]:
    """Return the names of all packages, for apt-get."""
    return sorted({*PACKAGES.values(), "containernetworking-plugins"})


def missing() -> str:
    """Return what this machine lacks and how to mend it, in one sentence; nothing if it has all."""
    if os.geteuid() != 0:
        return "a real node needs root: it makes namespaces and mounts"
    lacking = {package for program, package in PACKAGES.items() if shutil.which(program, path=PATH) is None}
    lacking |= set() if (PLUGINS / "bridge").exists() else {"containernetworking-plugins"}
    if lacking:
        return f"a real node needs packages that aren't installed: apt-get install --no-install-recommends {' '.join(sorted(lacking))}"
    if not Path("/sys/fs/cgroup/memory").is_dir():
        return "a real node needs the hierarchies of cgroup v1 in /sys/fs/cgroup, which this machine hasn't; elsewhere there is make kind"
    tried = subprocess.run(["unshare", *NAMESPACES, "sh", "-c", _TRIED], capture_output=True, text=True, check=False)
    if tried.returncode:
        said = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
        return f"a real node needs namespaces and overlayfs, which this machine refuses ({said}); elsewhere there is make kind"
    return ""
