"""docs/install.md on a real control plane: Helm installs, upgrades and uninstalls, and pods are processes of this machine.

Each stage of an installation's life is reached once, by the commands of the page; a test that needs one asks for it.
"""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import chart
import pytest
import yaml
from installation import SMALLER, SPACE, Installation, Load
from kubelet import PODS, PORT
from plane import PATIENCE

from certs import path_controller, path_probe, stored
from certs.path_probe import PathProbe, PathProber
from certs.path_publish import PathRotator
from certs.path_secret import PathEntry
from certs.paths import PathWaits
from muster.cli.installation import crds
from muster.kube import auth, errors, wait
from muster.kube.client import Client
from muster.kube.clock import SystemClock
from muster.kube.http import HttpTransport
from muster.kube.transport import Request
from muster.model import kinds, names, webhooks
from webhooks.registration import ServiceRef, configurations

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("installation")]

PAGE = (Path(__file__).parents[2] / "docs" / "install.md").read_text()
TENANT = "team"
WORK = {
    "metadata": {"name": "train", "annotations": {names.GROUP_MIN_MEMBER: "2"}},
    "spec": {
        "parallelism": 2,
        "completions": 2,
        "template": {
            "spec": {
                "schedulerName": names.SCHEDULER_NAME,
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "train", "resources": {"requests": {"cpu": "1"}}}],
            }
        },
    },
}


def group(name: str, queue: str = "default") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"minMember": 1, "queue": queue}}


def pod(name: str, scheduler: str) -> dict[str, Any]:
    containers = [{"name": "main", "image": "system"}]
    return {"metadata": {"name": name}, "spec": {"schedulerName": scheduler, "containers": containers}}


async def tenant(admin: Client) -> None:
    """Have a namespace of somebody else, in which pods can be made."""
    if await admin.find(kinds.NAMESPACES, TENANT) is None:
        await admin.create(kinds.NAMESPACES, {"metadata": {"name": TENANT}})
        holds = wait.until(admin, kinds.SERVICEACCOUNTS, "default", TENANT, holds=bool, within=PATIENCE)
        await holds


async def admitted(admin: Client) -> None:
    """Wait until the API server gets an answer from the webhooks; it tells nobody when it does."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await admin.create(kinds.PODGROUPS, group("probe"), TENANT, dry_run=True)
            except errors.ServerError:
                await asyncio.sleep(0.1)
            else:
                return


async def ready(cluster: Installation) -> None:
    for name in ("muster-certs", "muster-webhook", "muster-scheduler"):
        line = f"kubectl -n {SPACE} rollout status deployment/{name} --timeout=60s"
        await asyncio.to_thread(cluster.done, line)


def test_every_section_of_the_page_with_commands_is_followed(cluster):
    assert set(cluster.sections) == {
        "With Helm",
        "Values",
        "When everything is down",
        "Upgrade",
        "Uninstallation",
    }


def test_the_page_names_every_webhook_with_its_default():
    whole = configurations(ServiceRef("", ""), b"", scheduler_names=["a"], legacy_apis=False, own_namespace="")
    rows = {f"| `{each['name']}` | {each['failurePolicy']} |" for one in whole for each in one["webhooks"]}
    assert rows == {line for line in PAGE.splitlines() if ".muster.sh` |" in line}


# ── installed ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_by_the_commands_of_the_page_it_runs_and_refuses_and_admits(cluster, admin):
    said = await asyncio.to_thread(cluster.reach, "installed")
    refused, accepted = (said[line] for line in said if "docs/examples" in line)
    assert (
        'denied the request: queue "nightly" (spec.queue) does not exist: use one of the open queues (default)'
        in refused
    )
    assert "podgroup.scheduling.volcano.sh/found created (server dry run)" in accepted
    assert "1/1" in said["kubectl get deployments --namespace muster-system"]
    assert "default" in said["kubectl get queues"]
    for kind in (kinds.VALIDATING, kinds.MUTATING):
        found = await admin.get(kind, "muster")
        assert all(each["clientConfig"]["caBundle"] for each in found.webhooks)


async def test_its_programs_have_a_priority_level_of_their_own(cluster, admin):
    await asyncio.to_thread(cluster.reach, "installed")
    path = "/apis/flowcontrol.apiserver.k8s.io/v1"
    answer = await admin.send(Request("GET", f"{path}/flowschemas/muster"))
    schema = json.loads(answer.body)
    assert not [each for each in schema["status"]["conditions"] if each["status"] == "True"], "it dangles"
    for account in ("muster-webhook", "muster-scheduler"):
        # The kubelet made a kubeconfig for each; the certificates are the scheduler's here.
        endpoint = await auth.load(str(cluster.plane.directory / f"{account}.kubeconfig"))
        async with HttpTransport(endpoint) as transport:
            answer = await Client(transport).send(Request("GET", kinds.PODGROUPS.path()))
        assert answer.headers["x-kubernetes-pf-flowschema-uid"] == schema["metadata"]["uid"]


async def test_a_second_one_is_refused_by_the_name_of_the_first(cluster, admin):
    await asyncio.to_thread(cluster.reach, "installed")
    before = await admin.list(kinds.CLUSTERROLES)
    done = cluster.run("helm install another deploy/helm/muster --namespace another --create-namespace")
    assert done.returncode != 0
    assert f"Muster is in this cluster already, as Helm release {SPACE}/muster; a cluster has one" in done.stderr
    done = cluster.run("muster install")
    assert (done.returncode, done.stderr) == (
        1,
        (
            f"Error: Muster is in this cluster already, as Helm release {SPACE}/muster: use `helm upgrade muster -n {SPACE}`, "
            "or uninstall it first\n"
        ),
    )
    after = await admin.list(kinds.CLUSTERROLES)
    # Those that Kubernetes gathers from others may change at any time.
    mine = [
        {each.name: each.metadata.resource_version for each in found.items if "muster" in each.name}
        for found in (before, after)
    ]
    assert mine[0]
    assert mine[0] == mine[1]


async def test_a_webhook_that_helm_could_not_take_out_is_told_before_an_upgrade(cluster, admin):
    await asyncio.to_thread(cluster.reach, "installed")
    found = await admin.get(kinds.MUTATING, "muster")
    former = found.webhooks[0] | {"name": "former.muster.sh"}
    await admin.patch(kinds.MUTATING, "muster", {"webhooks": [*found.webhooks, former]})
    done = cluster.run(f"helm upgrade muster deploy/helm/muster -n {SPACE} --dry-run=server")
    await admin.patch(kinds.MUTATING, "muster", {"webhooks": list(found.webhooks)})
    assert done.returncode != 0
    assert "webhook former.muster.sh of MutatingWebhookConfiguration muster isn't in this chart" in done.stderr


async def test_the_secret_of_an_earlier_installation_beside_paths_of_the_former_version_is_told_before_an_upgrade(
    cluster, admin
):
    await asyncio.to_thread(cluster.reach, "installed")
    assert await called(admin) == webhooks.PATHS
    data = {"segments": base64.b64encode(b"qwertz\nasdf\n").decode()}
    # As `helm uninstall` of this version leaves it.
    meta = {"name": "muster-webhook-path", "annotations": {"helm.sh/resource-policy": "keep"}}
    await admin.create(kinds.SECRETS, {"metadata": meta, "data": data}, SPACE)
    upgrade = f"helm upgrade muster deploy/helm/muster -n {SPACE} --dry-run=server"
    try:
        refused = await asyncio.to_thread(cluster.run, upgrade)
        assert refused.returncode != 0
        told = f"kubectl delete secret muster-webhook-path -n {SPACE}"
        assert f"run `{told}` first" in refused.stderr
        assert "qwertz" not in refused.stderr
        await asyncio.to_thread(cluster.done, told)
        await asyncio.to_thread(cluster.done, upgrade)
    finally:
        if await admin.find(kinds.SECRETS, "muster-webhook-path", SPACE) is not None:
            await admin.delete(kinds.SECRETS, "muster-webhook-path", SPACE)


async def test_an_upgrade_keeps_the_actions_of_the_installation_and_says_so(cluster, admin):
    await asyncio.to_thread(cluster.reach, "installed")
    found = await admin.get(kinds.CONFIGMAPS, "muster-scheduler", SPACE)
    installed = found.data["scheduler.yaml"]
    assert "actions: enqueue, allocate, reclaim, backfill" in installed
    former = installed.replace("enqueue, allocate, reclaim, backfill", "enqueue, allocate, backfill")
    upgrade = f"helm upgrade muster deploy/helm/muster -n {SPACE} --dry-run=server"
    await admin.patch(kinds.CONFIGMAPS, "muster-scheduler", {"data": {"scheduler.yaml": former}}, SPACE)
    kept, chosen, taken = [
        await asyncio.to_thread(cluster.done, upgrade, *more)
        for more in (
            (),
            ("--set", "scheduler.actions={enqueue,allocate}"),
            ("--set", "scheduler.keepActions=false"),
        )
    ]
    await admin.patch(kinds.CONFIGMAPS, "muster-scheduler", {"data": {"scheduler.yaml": installed}}, SPACE)
    assert "    actions: enqueue, allocate, backfill\n" in kept
    assert "The upgrade keeps the scheduler's actions: enqueue, allocate, backfill" in kept
    assert "    actions: enqueue, allocate\n" in chosen
    assert "    actions: enqueue, allocate, reclaim, backfill\n" in taken
    assert all("The upgrade keeps" not in said for said in (chosen, taken))


async def test_what_the_chart_makes_of_any_values_is_accepted_by_the_api_server(cluster, admin, value_sets, render):
    await asyncio.to_thread(cluster.reach, "installed")
    for crd in yaml.safe_load_all((Path(__file__).parent / "foreign-crds.yaml").read_text()):
        await admin.create(kinds.CRDS, crd)
        name = crd["metadata"]["name"]
        await wait.until(admin, kinds.CRDS, name, holds=crds.established, within=PATIENCE)
    # What several sets make alike is asked once, and what was installed already not again.
    known = {json.dumps(each) for each in render({})}
    others = {json.dumps(each): each for values in value_sets.values() for each in render(values)}
    asked = [each for text, each in others.items() if text not in known]
    # What is in a namespace is asked as new: beside what Helm applied, another applier's list of ports would be a merge.
    await admin.create(kinds.NAMESPACES, {"metadata": {"name": "rendered"}})
    await asyncio.to_thread(cluster.done, "kubectl create serviceaccount muster-test --namespace rendered")
    for each in asked:
        if "namespace" in each["metadata"]:
            each["metadata"]["namespace"] = "rendered"
    file = cluster.folder / "rendered.yaml"
    file.write_text(yaml.safe_dump_all(asked))
    line = f"kubectl apply --server-side --force-conflicts --dry-run=server -f {file}"
    said = await asyncio.to_thread(cluster.done, line)
    assert said.count("serverside-applied") == len(asked)
    assert {each["kind"] for each in asked} >= {"Certificate", "Issuer", "PodMonitor", "PrometheusRule", "Deployment"}


async def test_webhooks_that_were_taken_away_are_brought_back(cluster, admin):
    await asyncio.to_thread(cluster.reach, "repaired")
    await tenant(admin)
    await admitted(admin)
    with pytest.raises(errors.ForbiddenError, match='queue "nightly"'):
        await admin.create(kinds.PODGROUPS, group("lost", "nightly"), TENANT)


async def test_with_everything_down_the_cluster_comes_up_by_itself(cluster, admin):
    await asyncio.to_thread(cluster.reach, "installed")
    await tenant(admin)
    await admitted(admin)
    await asyncio.to_thread(cluster.kubelet.power, on=False)
    # That it is down shows in what fails closed.
    for kind, manifest in ((kinds.PODGROUPS, group("refused")), (kinds.JOBS, WORK)):
        with pytest.raises(errors.ServerError, match="failed calling webhook"):
            await admin.create(kind, manifest, TENANT)
    await admin.create(kinds.PODS, pod("dns", "default-scheduler"), "kube-system")
    await admin.create(kinds.PODS, pod("agent", names.SCHEDULER_NAME), "kube-system")
    await admin.create(kinds.JOBS, WORK, "kube-system")
    gone = {each.metadata.uid for each in (await admin.list(PODS, SPACE)).items}
    for each in (await admin.list(PODS, SPACE)).items:
        await admin.send(Request("DELETE", PODS.path(SPACE, each.name), {"gracePeriodSeconds": "0"}))
    await asyncio.to_thread(cluster.kubelet.power, on=True)
    await ready(cluster)
    await admitted(admin)
    assert not gone & {each.metadata.uid for each in (await admin.list(PODS, SPACE)).items}
    for kind, name in ((kinds.PODS, "dns"), (kinds.PODS, "agent"), (kinds.JOBS, "train")):
        await admin.delete(kind, name, "kube-system")


async def test_three_commands_unblock_a_cluster_in_which_no_program_of_musters_runs(cluster, admin):
    """docs/blocked.md, each command of which has to have its effect by itself."""
    await asyncio.to_thread(cluster.reach, "repaired")
    await ready(cluster)
    await tenant(admin)
    await admitted(admin)
    await admin.patch(kinds.NAMESPACES, TENANT, {"metadata": {"labels": {names.QUOTA_MODE: names.GUARANTEED}}})
    await asyncio.to_thread(cluster.kubelet.power, on=False)
    for kind, manifest in ((kinds.PODGROUPS, group("blocked")), (kinds.PODS, pod("blocked", "default-scheduler"))):
        with pytest.raises(errors.ServerError, match="failed calling webhook"):
            await admin.create(kind, manifest, TENANT, dry_run=True)
    said = await asyncio.to_thread(cluster.reach, "blocked")
    assert [line.split()[1] for line in said] == ["label", "delete", "scale"]
    for kind, manifest in ((kinds.PODS, pod("free", "default-scheduler")), (kinds.PODGROUPS, group("free", "nightly"))):
        await stored_at_last(admin, kind, manifest)
        await admin.delete(kind, "free", TENANT)
    for name in ("muster-certs", "muster-webhook", "muster-scheduler"):
        line = f"kubectl -n {SPACE} get deployment/{name} -o jsonpath={{.spec.replicas}}"
        assert await asyncio.to_thread(cluster.done, line) == "0"
    await asyncio.to_thread(cluster.reach, "unblocked")
    await ready(cluster)
    await admitted(admin)
    with pytest.raises(errors.ForbiddenError, match='queue "nightly"'):
        await admin.create(kinds.PODGROUPS, group("lost", "nightly"), TENANT)
    # What comes after is about a namespace like any other.
    await admin.patch(kinds.NAMESPACES, TENANT, {"metadata": {"labels": {names.QUOTA_MODE: None}}})


async def stored_at_last(admin: Client, kind: Any, manifest: dict[str, Any]) -> None:
    """Create it once the API server has noticed that nobody is to be asked; it tells nobody when it does."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await admin.create(kind, manifest, TENANT)
            except errors.ServerError:
                await asyncio.sleep(0.1)
            else:
                return


# ── upgraded ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_no_review_fails_while_the_previous_version_is_replaced_by_this_one(cluster, admin):
    # Before, its webhooks are taken away, twice: not under this load.
    await asyncio.to_thread(cluster.reach, "installed")
    await tenant(admin)
    await asyncio.to_thread(cluster.reach, "unblocked")
    await ready(cluster)
    await admitted(admin)
    before = set(cluster.kubelet.pods)
    cluster.kubelet.ended.clear()
    kept, by = await certificates(admin), await keeper(admin)
    assert await may_read_keys(cluster, "muster-scheduler")
    load = Load(admin, TENANT)
    async with load.running():
        await load.another(100)
        await asyncio.to_thread(cluster.reach, "upgraded")
        async with asyncio.timeout(PATIENCE):
            while before & set(cluster.kubelet.pods):  # noqa: ASYNC110 - the kubelet's thread tells nobody
                await asyncio.sleep(0.1)
        # The certificates are kept by an account of their own from here on: they stay as they are.
        assert await certificates(admin) == kept
        assert await may_read_keys(cluster, "muster-certs")
        assert not await may_read_keys(cluster, "muster-scheduler")
        async with asyncio.timeout(PATIENCE):
            while await keeper(admin) == by:  # noqa: ASYNC110 - the program tells nobody
                await asyncio.sleep(0.1)
        await load.another(100)
    assert load.failures == []
    assert set(cluster.kubelet.ended) == before
    assert set(cluster.kubelet.ended.values()) == {0}
    deployment = cluster.done(f"helm history muster --namespace {SPACE} --output json")
    assert next(each["app_version"] for each in json.loads(deployment)) == "0.0.9"


async def certificates(admin: Client) -> list[dict[str, str]]:
    """Return what the Secrets of the certificates hold."""
    return [(await admin.get(kinds.SECRETS, name, SPACE)).data for name in (stored.CA, stored.TLS)]


async def keeper(admin: Client) -> str | None:
    """Return who keeps the certificates."""
    return (await admin.get(kinds.LEASES, "muster-certs", SPACE)).spec.holder_identity


async def may_read_keys(cluster: Installation, account: str) -> bool:
    """Whether an account of a program that ran may read the CA's key."""
    endpoint = await auth.load(str(cluster.plane.directory / f"{account}.kubeconfig"))
    async with HttpTransport(endpoint) as transport:
        try:
            return bool(await Client(transport).get(kinds.SECRETS, stored.CA, SPACE))
        except errors.ForbiddenError:
            return False


async def called(admin: Client) -> dict[str, str]:
    """Return the path of every webhook."""
    both = [await admin.get(kind, "muster") for kind in (kinds.VALIDATING, kinds.MUTATING)]
    return {each["name"]: each["clientConfig"]["service"]["path"] for found in both for each in found.webhooks}


def asked_here(cluster: Installation) -> PathProber:
    """Return who asks a pod where its process listens: nothing leads to a pod's address on this machine."""

    async def probe(address: str, entry: PathEntry, segment: str) -> PathProbe:
        pods = [each for each in cluster.kubelet.pods.values() if each.address == address.partition(":")[0]]
        ports = [each.ports[PORT] for each in pods if each.ports]
        return await path_probe.probe(f"127.0.0.1:{ports[0]}", entry, segment) if ports else PathProbe()

    return probe


async def test_no_review_fails_while_paths_get_a_segment_and_who_applies_the_chart_again_leaves_it_alone(
    cluster, admin
):
    await asyncio.to_thread(cluster.reach, "installed")
    await tenant(admin)
    await asyncio.to_thread(cluster.reach, "upgraded")
    await ready(cluster)
    await admitted(admin)
    assert await called(admin) == webhooks.PATHS
    waits = PathWaits(timedelta(seconds=1), timedelta(seconds=5))
    rotator = PathRotator(admin, SystemClock(), SPACE, prober=asked_here(cluster), waits=waits)
    load = Load(admin, TENANT)
    again = cluster.sections["Upgrade"][0]
    file = cluster.folder / "synced.yaml"
    synced = f"""helm get values muster -n {SPACE} -o yaml | helm template muster deploy/helm/muster -n {SPACE} --no-hooks -f - > {file}
        kubectl apply --server-side --force-conflicts --field-manager gitops -f {file}"""
    async with load.running():
        await load.another(20)
        await path_controller.replace_now(rotator, lambda _: None)
        before = await called(admin)
        assert {name: path.rpartition("/")[0] for name, path in before.items()} == webhooks.PATHS
        assert len({path.rpartition("/")[2] for path in before.values()}) == 1
        # The last time the release is one that began with this version: the sync has marked it so.
        for line, more in ((again, SMALLER), (synced, ()), (again, (*SMALLER, "--force-conflicts"))):
            await asyncio.to_thread(cluster.done, line, *more)
            assert await called(admin) == before
            await load.another(20)
    assert load.failures == []


# ── uninstalled ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_taken_away_it_leaves_workloads_running_and_holds_nothing(cluster, admin):
    await asyncio.to_thread(cluster.reach, "installed")
    await ready(cluster)
    await tenant(admin)
    await admitted(admin)
    held = await admin.create(kinds.JOBS, WORK, TENANT)
    assert held.spec.suspend
    assert held.metadata.annotation(names.SUSPENDED)
    await admin.create(kinds.QUEUES, {"metadata": {"name": "research"}})
    await wait.until(
        admin,
        kinds.QUEUES,
        "research",
        holds=lambda queue: queue is not None and names.QUEUE_FINALIZER in (queue.metadata.finalizers or ()),
        within=PATIENCE,
    )
    runs = await admin.create(kinds.PODS, pod("runs", "default-scheduler"), TENANT)
    kept = await admin.create(kinds.PODGROUPS, group("kept", "research"), TENANT)
    said = await asyncio.to_thread(cluster.reach, "uninstalled")
    assert "research" in said["kubectl get pg,queues --all-namespaces"]
    job = await admin.get(kinds.JOBS, held.name, TENANT)
    assert (job.spec.suspend, job.metadata.annotation(names.SUSPENDED)) == (False, "")
    assert (await admin.get(kinds.PODS, runs.name, TENANT)).metadata.uid == runs.metadata.uid
    assert (await admin.get(kinds.PODGROUPS, kept.name, TENANT)).metadata.uid == kept.metadata.uid
    await admin.delete(kinds.QUEUES, "research")
    assert await admin.find(kinds.QUEUES, "research") is None
    for name in (stored.CA, stored.TLS):
        assert (await admin.get(kinds.SECRETS, name, SPACE)).data
    for name in ("muster-scheduler", "muster-certs"):
        assert await admin.find(kinds.LEASES, name, SPACE) is None
    everything = cluster.done(
        "kubectl get clusterroles,clusterrolebindings,validatingwebhookconfigurations,mutatingwebhookconfigurations,"
        f"validatingadmissionpolicies,flowschemas,prioritylevelconfigurations,deployments,services,jobs -n {SPACE} -o name"
    )
    assert "muster" not in everything


async def test_what_is_in_the_way_is_told_before_anything_is_changed(cluster, admin):
    await asyncio.to_thread(cluster.reach, "uninstalled")
    queues = "queues.scheduling.volcano.sh"

    def refused(*more: str) -> str:
        done = cluster.run(f"helm install muster deploy/helm/muster --namespace {SPACE}", *more)
        assert done.returncode != 0
        return done.stderr

    crd = await admin.get(kinds.CRDS, queues)
    await admin.patch(kinds.CRDS, queues, {"metadata": {"labels": {"app.kubernetes.io/part-of": "another"}}})
    assert f"CustomResourceDefinition {queues} is in this cluster already and isn't Muster's" in refused()
    await admin.patch(kinds.CRDS, queues, {"metadata": {"labels": {"app.kubernetes.io/part-of": "muster"}}})
    await admin.patch(kinds.CRDS, queues, {"metadata": {"annotations": {"meta.helm.sh/release-name": "old"}}})
    assert (
        f"CustomResourceDefinition {queues} is of another installation of Muster (Helm release {SPACE}/old)"
        in refused()
    )
    await admin.patch(kinds.CRDS, queues, {"metadata": {"annotations": {"meta.helm.sh/release-name": "muster"}}})
    (version,) = crd.spec["versions"]
    # Of two versions whose schemas differ, the API server takes no fields to select by that are the same.
    plain = {key: value for key, value in version.items() if key != "selectableFields"}
    older = json.loads(json.dumps(plain))
    del older["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["message"]
    old = plain | {"name": "v1alpha1", "storage": False}
    await admin.patch(kinds.CRDS, queues, {"spec": {"versions": [older, old]}})
    assert "version v1beta1 of it has no field status.message" in refused("--set", "crds.install=false")
    status = {"status": {"storedVersions": ["v1alpha1", "v1beta1"]}}
    await admin.patch(kinds.CRDS, queues, status, subresource="status")
    assert "has objects stored as version v1alpha1, which Muster doesn't serve" in refused()
    await admin.patch(kinds.CRDS, queues, {"status": {"storedVersions": ["v1beta1"]}}, subresource="status")
    await admin.patch(kinds.CRDS, queues, {"spec": {"versions": [version]}})
    await admin.create(kinds.CLUSTERROLES, {"metadata": {"name": "muster-webhook"}, "rules": []})
    assert "ClusterRole muster-webhook is in this cluster already, and not of a Helm release" in refused()
    await admin.delete(kinds.CLUSTERROLES, "muster-webhook")
    assert "clusterrole" not in cluster.done(
        f"kubectl get clusterroles,deployments,services -o name -n {SPACE} | grep muster || true"
    )


@pytest.fixture
def no_nodes(cluster):
    """Have no pod run; what is made of Muster is gone at the end."""
    cluster.reach("uninstalled")
    cluster.kubelet.power(on=False)
    yield
    cluster.kubelet.power(on=True)


def shown(line: str) -> str:
    """Return a command that the page shows beside those that it has in order."""
    assert f"\n    {line}\n" in PAGE
    return line


def test_the_plain_manifest_installs_the_same(cluster, no_nodes):
    file = "deploy/manifests/muster.yaml"
    said = cluster.done(shown(f"kubectl apply --server-side -f {file}"), "--force-conflicts")
    assert said.count("serverside-applied") == sum(1 for _ in yaml.safe_load_all((chart.ROOT / file).read_text()))
    assert "muster uninstall` first" in cluster.run(f"helm install muster deploy/helm/muster -n {SPACE}").stderr
    cluster.done("muster uninstall")
    # What else it holds; the kinds stay.
    kinds_of_it = "deployments,services,configmaps,networkpolicies,poddisruptionbudgets"
    cluster.done(f"kubectl -n {SPACE} delete {kinds_of_it} --selector app.kubernetes.io/name=muster --wait=false")
    cluster.done("kubectl delete flowschema/muster prioritylevelconfiguration/muster")


def test_where_no_pod_can_run_it_is_taken_away_from_outside(cluster, no_nodes):
    cluster.done(f"helm install muster deploy/helm/muster -n {SPACE}", *SMALLER)
    cluster.done(shown("muster uninstall --namespace muster-system"))
    cluster.done(shown("helm uninstall muster --namespace muster-system --no-hooks"))
    left = cluster.done(f"kubectl get clusterroles,deployments,services,flowschemas -n {SPACE} -o name")
    assert "muster" not in left


async def test_asked_it_takes_the_kinds_too(cluster, admin):
    await asyncio.to_thread(cluster.reach, "gone")
    assert [each.name for each in (await admin.list(kinds.CRDS)).items if "muster" in str(each.metadata.labels)] == []
