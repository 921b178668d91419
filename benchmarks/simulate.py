"""What `muster simulate` takes for a week of a cluster: processor seconds and memory of the command itself.

    python benchmarks/simulate.py [--jobs 50000] [--nodes 1000] [--queues 10] [--load 0.75] [--days 7] [--seed 1]

Makes the cluster and a trace by the seed: arrivals by day and night, a few pods a job and now and then hundreds, from
minutes to a day long, scaled so that they ask for --load of the cluster's cpu. Runs the command on it, prints its report,
its wall-clock and processor seconds and its largest resident set.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import calibration
import yaml

ROOT = Path(__file__).parents[1]
CPU = 64
REQUESTS = ((1, "2Gi"), (2, "8Gi"), (4, "16Gi"), (8, "32Gi"), (16, "64Gi"))
DAY = 86400


def cluster(options: argparse.Namespace) -> str:
    allocatable = {"cpu": str(CPU), "memory": "256Gi", "pods": "110"}
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"node-{n:04}"},
            "status": {"allocatable": allocatable},
        }
        for n in range(options.nodes)
    ]
    version = "scheduling.volcano.sh/v1beta1"
    queues = [
        {"apiVersion": version, "kind": "Queue", "metadata": {"name": f"team-{n}"}, "spec": {"weight": 1 + n % 3}}
        for n in range(options.queues)
    ]
    return yaml.safe_dump_all([*nodes, *queues])


def trace(options: argparse.Namespace, file: Path) -> None:
    lot, week = random.Random(options.seed), options.days * DAY
    rows: list[tuple[float, float, int, int, str, str]] = []
    while len(rows) < options.jobs:
        arrival = lot.uniform(0, week)
        # At night a third of what comes by day.
        if lot.uniform(0, 1.5) > 1 + 0.5 * math.sin(2 * math.pi * arrival / DAY):
            continue
        cpu, memory = lot.choice(REQUESTS)
        pods = min(1 + int(lot.lognormvariate(0.7, 1.1)), 256)
        length = min(lot.lognormvariate(7.5, 1.2), DAY / 2)
        rows.append((arrival, length, pods, cpu, memory, f"team-{lot.randrange(options.queues)}"))
    asked = sum(length * pods * cpu for _, length, pods, cpu, _, _ in rows)
    scale = options.load * options.nodes * CPU * week / asked
    with file.open("w", encoding="utf-8", newline="") as opened:
        lines = csv.writer(opened)
        lines.writerow(("arrival", "duration", "pods", "request", "queue"))
        for arrival, length, pods, cpu, memory, queue in sorted(rows):
            seconds = min(max(length * scale, 1), 2 * DAY)
            lines.writerow((round(arrival), round(seconds), pods, f"cpu={cpu} memory={memory}", queue))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("jobs", 50_000), ("nodes", 1_000), ("queues", 10), ("days", 7), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--load", type=float, default=0.75)
    parser.add_argument("--config", help="a configuration of the scheduler; default: its own")
    options = parser.parse_args()
    calibration.tell()
    with tempfile.TemporaryDirectory() as folder:
        nodes, jobs = Path(folder, "cluster.yaml"), Path(folder, "jobs.csv")
        nodes.write_text(cluster(options), encoding="utf-8")
        trace(options, jobs)
        words = ["simulate", "-f", str(nodes), "--trace", str(jobs), "--for", f"{options.days}d"]
        words += ["--config", options.config] if options.config else []
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "muster.cli", *words], check=True, cwd=ROOT)
        took = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"\n{options.jobs:,} jobs, {options.nodes:,} nodes, {options.days} days: {took:.1f} s,"
        f" {used.ru_utime + used.ru_stime:.1f} CPU s, {used.ru_maxrss / 1024:.0f} MiB"
    )


if __name__ == "__main__":
    main()
