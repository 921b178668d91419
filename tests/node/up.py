"""`make node`: a real cluster on this machine with Muster in it, until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import time

import binaries
import images
import machine
from nodes import NodeError, Nodes


def check() -> int:
    """Return the status: 0 where this machine can have nodes, and all binaries are built; 3 where it lacks something."""
    if lacking := machine.missing():
        print(f"make node: {lacking}", file=sys.stderr)
        return machine.MISSING
    return binaries.main("node")


def main(count: int) -> int:
    """Run it; give the status."""
    if status := check():
        return status
    # Ctrl-C ends it also where whoever started it ignores that, as a shell does for what is in its background.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)
    begun = time.monotonic()
    print(f"starting {count} nodes and installing the chart …", flush=True)
    try:
        with Nodes(count) as nodes:
            nodes.install()
            print(f"ready after {time.monotonic() - begun:.0f} s: export KUBECONFIG={nodes.kubeconfig}", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return 0
    except (NodeError, images.ImageError) as error:
        print(f"make node: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(check() if sys.argv[1] == "--check" else main(int(sys.argv[1])))
