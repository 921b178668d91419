"""The sandbox on the network: TLS, tokens, keep-alive, watches that end, and webhooks that don't answer."""

from __future__ import annotations

import asyncio
import ssl
from datetime import timedelta
from io import BytesIO
from ipaddress import IPv4Address

import aiohttp
import msgspec
import pytest
import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from muster.kube.clock import SystemClock
from muster.sandbox.admission import UnreachableWebhookError
from muster.sandbox.core.users import ADMIN, User
from muster.sandbox.http import HttpFront, HttpWebhookCaller, kubeconfig
from muster.sandbox.server.requests import ApiServer

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Return the file of a certificate for loopback and its key, one after the other."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sandbox")])
    now = SystemClock().now()
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    file.write_bytes(signed.public_bytes(serialization.Encoding.PEM) + private)
    return file


def serving(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


class Running:
    def __init__(self, server, front, url, session):
        self.server, self.front, self.url, self.session = server, front, url, session

    def send(self, method, path, token="secret", **more):
        headers = more.pop("headers", {}) | ({"Authorization": f"Bearer {token}"} if token else {})
        return self.session.request(method, self.url + path, headers=headers, **more)

    async def json(self, method, path, **more):
        async with self.send(method, path, **more) as response:
            return response.status, msgspec.json.decode(await response.read())


@pytest.fixture
async def running(certificate):
    server = ApiServer(SystemClock())
    namespaces = server.registry.find("", "v1", "namespaces")
    await server.create_object(namespaces, "", {"metadata": {"name": "default"}}, ADMIN)
    front = HttpFront(server, users={"secret": ADMIN, "jane": User("jane")}, tls=serving(certificate))
    url = await front.start()
    trust = ssl.create_default_context(cafile=str(certificate))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
        yield Running(server, front, url, session)
    await front.stop()
    server.close()
    assert server.open_watches == 0


async def test_objects_travel_over_tls(running):
    status, made = await running.json("POST", MAPS, json={"metadata": {"name": "a"}})
    assert (status, made["kind"]) == (201, "ConfigMap")
    assert (await running.json("GET", f"{MAPS}/a"))[0] == 200


async def test_the_user_agent_names_the_field_manager(running):
    headers = {"User-Agent": "kubectl/v1.36"}
    _, made = await running.json("POST", MAPS, json={"metadata": {"name": "a"}, "data": {"k": "v"}}, headers=headers)
    assert made["metadata"]["managedFields"][0]["manager"] == "kubectl"


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_without_a_known_token_nothing_is_told(running, token):
    status, answer = await running.json("GET", PODS, token=token)
    assert (status, answer["reason"]) == (401, "Unauthorized")


async def test_health_and_version_are_told_to_anybody(running):
    for path in ("/healthz", "/livez", "/readyz", "/readyz/ping"):
        async with running.send("GET", path, token="") as response:
            assert (response.status, await response.text()) == (200, "ok")
    assert (await running.json("GET", "/version", token=""))[1]["gitVersion"] == "v1.37.2+muster-sandbox"


async def test_a_user_is_who_the_token_says_or_whom_it_speaks_for(running):
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    _, answer = await running.json("POST", path, json=review, token="jane")
    assert answer["status"]["userInfo"]["username"] == "jane"
    headers = {"Impersonate-User": "bob", "Impersonate-Group": "team"}
    _, answer = await running.json("POST", path, json=review, headers=headers)
    assert answer["status"]["userInfo"] == {"username": "bob", "groups": ["team", "system:authenticated"]}


async def test_a_watch_streams_and_ends_with_the_server(running):
    async with running.send("GET", f"{MAPS}?watch=true") as response:
        await running.json("POST", MAPS, json={"metadata": {"name": "a"}})
        event = msgspec.json.decode(await response.content.readline())
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")
        stopping = asyncio.ensure_future(running.front.stop())
        assert await response.content.readline() == b""
        await stopping


async def test_a_watch_of_a_client_that_hangs_up_is_closed(running):
    response = await running.send("GET", f"{MAPS}?watch=true")
    [watch] = running.server._watchers._open["", "configmaps"]
    response.close()
    async with asyncio.timeout(60):
        while await watch.wait():
            pass
    assert running.server.open_watches == 0


async def test_a_refused_watch_is_a_status(running):
    status, answer = await running.json("GET", f"{PODS}?watch=1&fieldSelector=spec.queue%3Dx")
    assert (status, answer["message"]) == (400, "field label not supported: spec.queue")


async def test_a_body_over_three_megabytes_is_refused(running):
    status, answer = await running.json("POST", MAPS, data=BytesIO(b"x" * (3 * 1024 * 1024 + 1)))
    assert (status, answer["reason"]) == (413, "RequestEntityTooLarge")


async def test_a_defect_is_a_status_without_a_traceback(running, monkeypatch, caplog):
    async def broken(*_args, **_more):
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(running.server, "handle", broken)
    status, answer = await running.json("GET", PODS)
    assert (status, answer["reason"]) == (500, "InternalError")
    assert "secret detail" not in answer["message"]
    assert "a defect of the sandbox" in caplog.text


async def test_a_hanging_client_doesnt_stop_its_write_half_way(running, monkeypatch):
    admitted, go_on = asyncio.Event(), asyncio.Event()

    class Slow:
        async def admit(self, attributes, _warnings):
            admitted.set()
            await go_on.wait()
            return running.server.complete(attributes, attributes.object)

    monkeypatch.setattr(running.server.writes, "admission", Slow())
    request = asyncio.ensure_future(running.json("POST", MAPS, json={"metadata": {"name": "a"}}))
    await admitted.wait()
    stored = asyncio.Event()
    running.server.store.subscribe(lambda _event: stored.set())
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    go_on.set()
    async with asyncio.timeout(60):
        await stored.wait()


def test_a_kubeconfig_holds_all_that_a_client_needs():
    config = yaml.safe_load(kubeconfig("https://127.0.0.1:1", "secret", b"PEM"))
    assert config["clusters"][0]["cluster"] == {
        "server": "https://127.0.0.1:1",
        "certificate-authority-data": "UEVN",
    }
    assert config["users"][0]["user"] == {"token": "secret"}
    assert config["current-context"] == config["contexts"][0]["name"]


# ── webhooks ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def caller():
    caller = HttpWebhookCaller()
    yield caller
    await caller.close()


@pytest.fixture
async def webhook(certificate):
    never = asyncio.Event()

    async def answer(request):
        if request.path == "/hang":
            await never.wait()
        return web.Response(status=418, body=await request.read(), headers={"X-Kind": "teapot"})

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=serving(certificate)).start()
    host, port = runner.addresses[0]
    yield f"https://{host}:{port}"
    never.set()
    await runner.cleanup()


async def test_a_webhook_answers_with_status_headers_and_body(caller, webhook, certificate):
    status, headers, body = await caller.call(f"{webhook}/x", certificate.read_bytes(), b"{}", within=60)
    assert (status, headers["x-kind"], body) == (418, "teapot", b"{}")


async def test_a_webhook_of_an_unknown_authority_isnt_trusted(caller, webhook):
    with pytest.raises(UnreachableWebhookError, match="x509: certificate signed by unknown authority"):
        await caller.call(f"{webhook}/x", b"", b"{}", within=60)


async def test_a_webhook_that_hangs_is_given_up(caller, webhook, certificate):
    with pytest.raises(UnreachableWebhookError, match="context deadline exceeded"):
        await caller.call(f"{webhook}/hang", certificate.read_bytes(), b"{}", within=0.2)


async def test_a_webhook_that_isnt_there_is_refused_as_go_says_it(caller, unused_tcp_port):
    url = f"https://127.0.0.1:{unused_tcp_port}/x"
    with pytest.raises(
        UnreachableWebhookError, match=rf"dial tcp 127.0.0.1:{unused_tcp_port}: connect: connection refused"
    ):
        await caller.call(url, b"", b"{}", within=60)


async def test_a_bundle_that_isnt_pem_is_named(caller, webhook):
    with pytest.raises(UnreachableWebhookError, match="unable to parse bytes as PEM block"):
        await caller.call(f"{webhook}/x", b"nonsense", b"{}", within=60)
