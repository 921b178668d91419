"""How many pods per second the sandbox creates through its HTTPS API.

Run: python benchmarks/creations.py [CONNECTIONS] [SECONDS]   (needs wrk: Debian's package of that name)
Starts `muster up` without nodes and lets wrk POST pods with generateName over keep-alive connections. The webhooks are
registered; their match conditions are evaluated for each pod, and none of them is called for these.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import calibration
import yaml

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "bench-", "namespace": "default", "labels": {"app": "bench"}},
    "spec": {"containers": [{"name": "c", "image": "example.com/c", "resources": {"requests": {"cpu": "1"}}}]},
}

SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer %s"
wrk.body = [[%s]]
"""


def main() -> None:
    calibration.tell()
    connections = sys.argv[1] if len(sys.argv) > 1 else "16"
    seconds = sys.argv[2] if len(sys.argv) > 2 else "5"
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "kubeconfig"
        command = [sys.executable, "-m", "muster.cli", "up", "--nodes", "0", "--kubeconfig-out", str(config)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
            try:
                assert server.stdout is not None
                server.stdout.readline()
                found = yaml.safe_load(config.read_text())
                token = found["users"][0]["user"]["token"]
                url = found["clusters"][0]["cluster"]["server"]
                script = Path(folder) / "create.lua"
                script.write_text(SCRIPT % (token, json.dumps(POD)))
                target = f"{url}/api/v1/namespaces/default/pods"
                wrk = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script), target]
                subprocess.run(wrk, check=True)
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
