"""cert-manager's own controllers issue, inject and renew what the chart asks for with `certificates.mode: cert-manager`."""

from __future__ import annotations

import asyncio
import base64
import json

import binaries
import pytest
from nodes import SPACE, NodeError
from platforms import asking, decides, helm, until
from test_gangs import job

pytestmark = pytest.mark.processes

_KINDS = {"certificates": "Certificate", "certificaterequests": "CertificateRequest", "issuers": "Issuer"}
_KINDS |= {"clusterissuers": "ClusterIssuer"}
_SECRET = "muster-webhook-certificate"


def crd(plural: str, kind: str) -> str:
    """Return a CRD that keeps all fields; tests/deploy holds the chart's objects to the schemas."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    scope = "Cluster" if kind == "ClusterIssuer" else "Namespaced"
    names = {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"}
    spec = {"group": "cert-manager.io", "scope": scope, "names": names, "versions": [version]}
    metadata = {"name": f"{plural}.cert-manager.io"}
    about = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return json.dumps(about | {"metadata": metadata, "spec": spec})


@pytest.fixture(scope="module")
def issued(dual):
    """The cluster with cert-manager, and Muster set to it; at the end Muster issues its own again."""
    for plural, kind in _KINDS.items():
        dual.kubectl("apply", "-f", "-", stdin=crd(plural, kind))
    established = [f"crd/{each}.cert-manager.io" for each in _KINDS]
    dual.kubectl("wait", *established, "--for=condition=Established", "--timeout=60s")
    dual.add("cert-manager", str(binaries.find("cert-manager")), f"--kubeconfig={dual.folder / 'inside.kubeconfig'}")
    set_to = ("upgrade", "muster", "deploy/helm/muster", "--reset-then-reuse-values", "--set")
    helm(dual, *set_to, "certificates.mode=cert-manager")
    yield dual
    helm(dual, *set_to, "certificates.mode=own")
    dual.kill("cert-manager")
    decides(dual, job("own", ["true"]), "own")
    dual.kubectl("delete", *established)


def data(nodes, secret: str, key: str) -> bytes:
    found = json.loads(nodes.kubectl("get", "secret", secret, "--namespace", SPACE, "--output=json"))
    return base64.b64decode(found["data"][key])


def bundles(nodes) -> set[bytes]:
    """Return what the API server trusts, of every webhook."""
    kinds = "validatingwebhookconfiguration/muster,mutatingwebhookconfiguration/muster"
    found = [json.loads(nodes.kubectl("get", each, "--output=json")) for each in kinds.split(",")]
    return {base64.b64decode(hook["clientConfig"]["caBundle"]) for each in found for hook in each["webhooks"]}


async def test_cert_manager_issues_injects_and_renews_and_nobody_is_refused_by_a_renewal(issued):
    authority = data(issued, _SECRET, "ca.crt").strip()
    # Beside it may still be what Muster signed with before.
    await asyncio.to_thread(until, lambda: all(authority in each for each in bundles(issued)))
    await asyncio.to_thread(decides, issued, job("issued", ["true"]), "issued")
    before = data(issued, _SECRET, "tls.crt")
    async with asking(issued) as load:
        # As `cmctl renew` asks for it.
        condition = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "renewal"}
        words = ("patch", "certificate.cert-manager.io", "muster-webhook", "--namespace", SPACE, "--subresource=status")
        patch = json.dumps([{"op": "add", "path": "/status/conditions/-", "value": condition}])
        await asyncio.to_thread(issued.kubectl, *words, "--type=json", f"--patch={patch}")
        await asyncio.to_thread(until, lambda: data(issued, _SECRET, "tls.crt") != before)
        await asyncio.to_thread(until, lambda: shown(issued) == {data(issued, _SECRET, "tls.crt").strip()})
        await load.another(50)
        assert load.failures == []


_SHOWN = """
import ssl, sys
for each in sys.argv[1:]:
    print(ssl.get_server_certificate((each, 9443)), end="|")
"""


def shown(nodes) -> set[bytes]:
    """Return the certificates that the webhooks' replicas show; none where one that ends, or begins, shows nothing."""
    found = nodes.kubectl(
        *("get", "pods", "--namespace", SPACE, "--selector=app.kubernetes.io/component=webhook"),
        "--output=jsonpath={.items[*].status.podIP}",
    )
    try:
        said = nodes.inside("python3", "-c", _SHOWN, *found.split())
    except NodeError:
        return set()
    return {each.strip().encode() for each in said.split("|") if each.strip()}
