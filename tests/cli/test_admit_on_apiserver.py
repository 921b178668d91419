"""What `muster admit` foretells is what the API server then answers, word for word: on the sandbox and on the real one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from plane import Plane

from muster.cli import cluster, manifests
from muster.cli.installation import crds
from muster.kube import errors
from muster.model import kinds
from muster.whatif import admission
from muster.whatif.admission import AdmissionForecast
from scheduler.configuration import config
from webhooks.compose import WebhookOptions, serving
from webhooks.server import ListenOptions

_KINDS = {kind.name: kind for kind in (kinds.PODGROUPS, kinds.JOBS, kinds.QUEUES, kinds.DEPLOYMENTS)}


def group(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": kinds.PODGROUPS.api_version, "kind": "PodGroup", "metadata": meta, "spec": spec}


def job(name: str, namespace: str, queue: str) -> dict[str, Any]:
    container = {"name": "main", "image": "example.com/train", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"schedulerName": "muster", "restartPolicy": "Never", "containers": [container]}}
    meta = {"name": name, "namespace": namespace, "annotations": {"scheduling.volcano.sh/queue-name": queue}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"parallelism": 2, "template": template}}


def deployment(name: str, namespace: str, queue: str) -> dict[str, Any]:
    container = {"name": "main", "image": "example.com/web", "resources": {"requests": {"cpu": "1"}}}
    annotations = {"scheduling.k8s.io/group-min-member": "3", "scheduling.volcano.sh/queue-name": queue}
    meta = {"labels": {"app": name}, "annotations": annotations}
    template = {"metadata": meta, "spec": {"schedulerName": "muster", "containers": [container]}}
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


async def foretold(plane: Plane, bodies: Sequence[dict[str, Any]], folder: Path) -> AdmissionForecast:
    file = folder / "all.yaml"
    file.write_text(yaml.safe_dump_all(bodies))
    state = await cluster.read(plane.client, plane.clock.now())
    wanted = manifests.read_for([str(file)], "default")
    return await admission.find_out(
        state, wanted, [], config.parse(config.DEFAULT), ("muster",), crds.manifests(legacy_apis=False)
    )


async def answered(plane: Plane, body: dict[str, Any]) -> tuple[int, str]:
    try:
        await plane.client.create(_KINDS[body["kind"]], body, body["metadata"]["namespace"])
    except errors.ApiError as error:
        return error.code, error.message
    return 201, ""


async def test_admit_foretells_what_the_api_server_answers(plane: Plane, tmp_path: Path) -> None:
    namespace, open_, shut = await plane.namespace(), plane.unique("open"), plane.unique("shut")
    options = WebhookOptions(plane.certificate, ListenOptions("127.0.0.1", 0, drain=0))
    async with serving(await plane.connect(), plane.clock, options) as server:
        await plane.register(server, namespace=namespace)
        await plane.create(kinds.QUEUES, {"metadata": {"name": open_}})
        await plane.create(kinds.QUEUES, {"metadata": {"name": shut}, "spec": {"desiredState": "Closed"}})
        hard = {"metadata": {"name": "compute"}, "spec": {"hard": {"requests.cpu": "10", "pods": "8"}}}
        await plane.client.create(kinds.RESOURCEQUOTAS, hard, namespace)
        bodies = [
            group("lost", namespace, minMember=1, queue="nowhere"),
            group("wrong", namespace, minMember=-1, queue=open_),
            group("late", namespace, minMember=1, queue=shut),
            group("first", namespace, minMember=2, queue=open_, minResources={"cpu": "6"}),
            group("second", namespace, minMember=9, queue=open_, minResources={"cpu": "6"}),
            job("shut", namespace, shut),
            job("fine", namespace, open_),
            group("nowhere", f"{namespace}-missing", minMember=1, queue=open_),
            deployment("web", namespace, open_),
            deployment("astray", namespace, "nowhere"),
        ]
        finding = await foretold(plane, bodies, tmp_path)
        answers = [each.answer for each in finding.verdicts]
        told = [(each.code, errors.bounded((each.status or {}).get("message", ""))) for each in answers]
        assert told == [await answered(plane, body) for body in bodies]
        assert [code for code, _ in told[:9]] == [403, 422, 403, 201, 403, 403, 201, 404, 201]
        started = {start.label: start for start in finding.starts}
        assert started[f"Deployment {namespace}/web"].pods == 3
        assert any("allows 8 pods" in warning for warning in answers[4].warnings)
        assert finding.verdicts[4].alone
        await plane.unregister()
