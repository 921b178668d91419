"""Pods of the webhook servers are annotated when a Secret that they mount was written."""

from __future__ import annotations

from certs import mounts
from muster.kube import errors
from muster.kube.clock import SystemClock
from muster.model import kinds, names

SERVER = {"app.kubernetes.io/part-of": "muster", "app.kubernetes.io/component": "webhook"}
SPEC = {"containers": [{"name": "main", "image": "x"}], "schedulerName": "nobody"}


async def written(plane, space: str, name: str) -> str:
    return (await plane.client.get(kinds.PODS, name, space)).metadata.annotation(names.VOLUMES_WRITTEN)


async def test_each_server_is_annotated_at_each_write_and_no_other_pod(plane):
    space = await plane.namespace()
    for name, labels in (
        ("one", SERVER),
        ("two", SERVER),
        ("other", SERVER | {"app.kubernetes.io/component": "certs"}),
    ):
        await plane.create(kinds.PODS, {"metadata": {"name": name, "labels": labels}, "spec": SPEC}, space)
    await mounts.refresh(plane.client, SystemClock(), space)
    first = [await written(plane, space, name) for name in ("one", "two")]
    assert all(first)
    assert await written(plane, space, "other") == ""
    await mounts.refresh(plane.client, SystemClock(), space)
    assert [await written(plane, space, name) > before for name, before in zip(("one", "two"), first, strict=True)]


async def test_where_pods_may_not_be_written_the_certificates_are_kept_all_the_same(setting, monkeypatch, caplog):
    async def refused(kind, *_args, **_options):
        raise errors.ForbiddenError(403, "Forbidden", f"{kind.plural} is forbidden")

    caplog.set_level("INFO", "certs.mounts")
    await setting.configure()
    monkeypatch.setattr(setting.client, "list", refused)
    await mounts.refresh(setting.client, SystemClock(), setting.target.namespace)
    assert "in about a minute: " in caplog.text
    assert "pods is forbidden" in caplog.text
