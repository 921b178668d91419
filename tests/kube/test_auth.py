"""Kubeconfigs as people have them, read from real files with real plugins."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
import tempfile
import textwrap
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from certs import authority
from muster.kube import auth, errors, execplugin, kubeconfig


@pytest.fixture(scope="module")
def pair():
    now = datetime.now(UTC)  # noqa: TID251 - a certificate that must be valid now
    ca = authority.new_ca(now)
    return ca, authority.issue(ca, ("client",), now)


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch, tmp_path):
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def write(tmp_path):
    def make(user=None, cluster=None, name="config", context="c"):
        path = tmp_path / name
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": context,
                    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                    "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1/"} | (cluster or {})}],
                    "users": [{"name": "u", "user": user or {}}],
                }
            )
        )
        return str(path)

    return make


def plugin(tmp_path, body):
    path = tmp_path / "plugin.py"
    path.write_text(f"#!{sys.executable}\n{textwrap.dedent(body)}")
    path.chmod(0o755)
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin.py", "interactiveMode": "Never"}


def b64(data):
    return base64.b64encode(data).decode()


async def test_a_token_becomes_a_header(write):
    endpoint = await auth.load(write({"token": "abc"}))
    assert endpoint.server == "https://127.0.0.1:1"
    assert await endpoint.headers() == {"Authorization": "Bearer abc"}
    assert endpoint.tls.verify_mode is ssl.CERT_REQUIRED


async def test_a_password_becomes_a_header(write):
    endpoint = await auth.load(write({"username": "u", "password": "p q"}))
    assert await endpoint.headers() == {"Authorization": f"Basic {b64(b'u:p q')}"}


@pytest.mark.parametrize("inline", [True, False])
async def test_certificates_are_read_inline_or_from_files_beside_the_kubeconfig(write, tmp_path, pair, inline):
    ca, client = pair
    if inline:
        user = {"client-certificate-data": b64(client.certificate), "client-key-data": b64(client.key)}
        cluster = {"certificate-authority-data": b64(ca.certificate)}
    else:
        for name, data in (("ca", ca.certificate), ("crt", client.certificate), ("key", client.key)):
            (tmp_path / name).write_bytes(data)
        user, cluster = {"client-certificate": "crt", "client-key": "key"}, {"certificate-authority": "ca"}
    scratch = tmp_path / "scratch"
    settings = await kubeconfig.read_files(write(user, cluster), None)
    assert (settings.authority, settings.certificate) == (ca.certificate.decode(), client.certificate.decode())
    endpoint = await auth.load(write(user, cluster))
    assert len(endpoint.tls.get_ca_certs()) == 1
    assert await endpoint.headers() == {}
    # Neither the loader nor ssl leave the private key anywhere.
    assert list(scratch.iterdir()) == []


async def test_the_clusters_settings_are_taken_over(write):
    cluster = {"insecure-skip-tls-verify": True, "tls-server-name": "kubernetes", "proxy-url": "http://p:3128"}
    endpoint = await auth.load(write({}, cluster))
    assert (endpoint.tls.verify_mode, endpoint.tls.check_hostname) == (ssl.CERT_NONE, False)
    assert (endpoint.server_name, endpoint.proxy) == ("kubernetes", "http://p:3128")


async def test_a_proxy_of_the_environment_is_used_unless_the_host_is_excepted(write, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://p:3128")
    assert (await auth.load(write())).proxy == "http://p:3128"
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert (await auth.load(write())).proxy == ""


async def test_plain_http_needs_no_tls(write):
    assert (await auth.load(write({}, {"server": "http://127.0.0.1:1"}))).tls is None


async def test_kubeconfig_is_found_as_kubectl_does(write, monkeypatch, tmp_path):
    (tmp_path / "home/.kube").mkdir(parents=True)
    write({"token": "home"}, name="home/.kube/config")
    assert await (await auth.load()).headers() == {"Authorization": "Bearer home"}
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing:{write({'token': 'env'}, name='env')}")
    assert await (await auth.load()).headers() == {"Authorization": "Bearer env"}
    assert await (await auth.load(write({"token": "flag"}))).headers() == {"Authorization": "Bearer flag"}


async def test_a_token_file_is_preferred_trimmed_and_read_again(write, tmp_path):
    (tmp_path / "token").write_text("first\n")
    endpoint = await auth.load(write({"tokenFile": "token", "token": "older"}))
    first = await endpoint.headers()
    assert first == {"Authorization": "Bearer first"}
    (tmp_path / "token").write_text("second\n")
    assert await endpoint.headers() == first
    assert await endpoint.renew(first)
    assert await endpoint.headers() == {"Authorization": "Bearer second"}
    # One that was refused before the renewal needs no other.
    assert await endpoint.renew(first)


async def test_what_was_refused_is_not_offered_again(write):
    endpoint = await auth.load(write({"token": "abc"}))
    assert not await endpoint.renew(await endpoint.headers())


@pytest.mark.processes
async def test_a_plugin_is_run_again_when_its_token_is_refused_or_old(write, tmp_path):
    soon = (datetime.now(UTC) + timedelta(seconds=0.4)).isoformat()  # noqa: TID251 - a plugin's own clock
    exec_ = plugin(
        tmp_path,
        f"""
        import json, os, pathlib
        runs = pathlib.Path({str(tmp_path)!r}, "runs")
        runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
        token = os.environ["PREFIX"] + str(len(runs.read_text()))
        info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
        assert info["spec"] == {{"interactive": False, "cluster": {{"server": "https://127.0.0.1:1/"}}}}, info
        status = {{"token": token}}
        if len(runs.read_text()) == 2:
            status["expirationTimestamp"] = {soon!r}
        print(json.dumps({{"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": status}}))
        """,
    )
    exec_ |= {"env": [{"name": "PREFIX", "value": "t"}], "provideClusterInfo": True}
    endpoint = await auth.load(write({"exec": exec_}))
    first = await endpoint.headers()
    assert first == {"Authorization": "Bearer t1"}
    assert await endpoint.headers() is first
    assert await endpoint.renew(first)
    second = {"Authorization": "Bearer t2"}
    # The plugin said that this one is good for a moment only, which has passed or will before long.
    assert await endpoint.headers() in (second, {"Authorization": "Bearer t3"})


@pytest.mark.processes
async def test_a_plugin_may_give_a_certificate(write, tmp_path, pair):
    _, client = pair
    status = {"clientCertificateData": client.certificate.decode(), "clientKeyData": client.key.decode()}
    printed = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    exec_ = plugin(tmp_path, f"print({json.dumps(printed)!r})")
    settings = await kubeconfig.read_files(write({"exec": exec_}), None)
    assert settings.certificate == client.certificate.decode()
    assert settings.fresh_for is None


@pytest.mark.processes
async def test_a_plugin_that_fails_later_is_not_run_for_each_request(write, tmp_path):
    exec_ = plugin(
        tmp_path,
        f"""
        import pathlib, sys
        runs = pathlib.Path({str(tmp_path)!r}, "runs")
        runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
        if len(runs.read_text()) > 1:
            sys.exit("expired login")
        print('{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"t"}}}}')
        """,
    )
    endpoint = await auth.load(write({"exec": exec_}))
    headers = await endpoint.headers()
    for _ in range(5):
        with pytest.raises(errors.ConfigError, match="expired login"):
            await endpoint.renew(headers)
    assert (tmp_path / "runs").read_text() == "xx"
    assert await endpoint.headers() == headers


@pytest.mark.processes
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import sys; sys.exit('please log in')", r"failed \(1\): please log in"),
        ("print('hello')", "printed no ExecCredential"),
        ('print(\'{"apiVersion":"x","kind":"k","status":{}}\')', "answered in x"),
        (
            'print(\'{"apiVersion":"client.authentication.k8s.io/v1","kind":"k","status":{}}\')',
            "neither a token nor a certificate",
        ),
        ("import sys; sys.stderr.write('x' * 1_000_000); sys.exit(3)", r"failed \(3\): x+…"),
        ("import time; time.sleep(60)", "printed nothing within 0.3 s"),
    ],
)
async def test_what_a_plugin_does_wrong_is_said(write, tmp_path, monkeypatch, body, said):
    if "sleep" in body:
        monkeypatch.setattr(execplugin, "LIMIT", 0.3)
    await refused(write({"exec": plugin(tmp_path, body)}), said)


@pytest.mark.processes
async def test_a_plugin_that_is_not_there_is_named_with_the_hint(write):
    exec_ = {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin", "installHint": "get it at X"}
    await refused(write({"exec": exec_}), "no-such-plugin can't be run: No such file or directory; get it at X")
    await refused(write({"exec": exec_ | {"apiVersion": "v0"}}), "asks for apiVersion v0; served are")
    await refused(write({"exec": {"command": 3}}), "the exec section of a user in kubeconfig .* is wrong")


async def refused(path, said, context=None):
    with pytest.raises(errors.ConfigError, match=said) as caught:
        await auth.load(path, context)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) <= 2 * errors.TEXT_LIMIT


async def test_what_is_wrong_with_a_file_is_said_with_its_name(write, tmp_path):
    await refused(f"{tmp_path}/nope", f"kubeconfig {tmp_path}/nope doesn't exist; name another with --kubeconfig")
    for content, said in (
        ("a: [", "isn't YAML"),
        ("- a", "isn't a kubeconfig"),
        ("", "isn't a kubeconfig"),
        ("x", "isn't a"),
    ):
        (tmp_path / "bad").write_text(content)
        await refused(f"{tmp_path}/bad", f"{tmp_path}/bad {said}")
    await refused(str(tmp_path), "can't be read: Is a directory")


async def test_what_is_wrong_with_a_context_is_said_with_the_choice(write):
    path = write({"token": "t"})
    await refused(path, f"kubeconfig {path} has no context 'other'; it has c", "other")
    await refused(write(context=""), "has no current-context; choose one with --context: it has c")
    with open(path) as file:  # noqa: PTH123,ASYNC230 - a test's own small file
        config = yaml.safe_load(file)
    for section, key in (("users", "user"), ("clusters", "cluster")):
        with open(path, "w") as file:  # noqa: PTH123,ASYNC230 - as above
            yaml.safe_dump(config | {section: []}, file)
        await refused(path, f"context 'c' of kubeconfig {path} needs a {key} that is described under {section}", "c")


async def test_what_is_wrong_with_its_content_is_said(write, pair):
    ca, client = pair
    good = {"client-certificate-data": b64(client.certificate), "client-key-data": b64(client.key)}
    await refused(write(good | {"client-key-data": b64(ca.key)}), "client certificate and key of .* can't be used")
    await refused(write(good | {"client-key-data": "!!"}), "client-key-data in kubeconfig .* isn't base64")
    await refused(write({"client-certificate": "gone"}), "can't be used: .*No such file or directory: .*gone")
    await refused(write({"tokenFile": "gone"}), "No such file or directory: .*gone")
    await refused(write({"token": "a\nb"}), "holds characters that no token has")
    await refused(write({}, {"certificate-authority-data": b64(b"junk")}), "is no PEM certificate")
    await refused(write({}, {"server": "127.0.0.1:6443"}), "must be an https:// URL")
    await refused(write({}, {"proxy-url": "socks5://p"}), "socks5://p of .* isn't supported")


async def test_without_any_cluster_the_person_is_told_how_to_get_one():
    await refused(None, "start a cluster on this machine with `muster up`")


async def test_inside_a_pod_the_service_account_is_used_and_read_again(monkeypatch, tmp_path, pair):
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_bytes(pair[0].certificate)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path)
    endpoint = await auth.load()
    assert endpoint.server == "https://[::1]:443"
    first = await endpoint.headers()
    assert first == {"Authorization": "Bearer first"}
    (tmp_path / "token").write_text("second\n")
    assert await endpoint.renew(first)
    assert await endpoint.headers() == {"Authorization": "Bearer second"}
    await refused(None, "--context x needs a kubeconfig", "x")
    (tmp_path / "token").unlink()
    await refused(None, "the pod's service account can't be used: .*No such file.*automountServiceAccountToken")
    (tmp_path / "token").write_text("\n")
    await refused(None, "the pod's service account can't be used: its token or ca.crt in .* is empty")


async def test_of_several_files_the_first_that_names_something_counts_and_paths_start_beside_it(write, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, token in ((first, "one"), (second, "two")):
        folder.mkdir()
        (folder / "token").write_text(token)
    write({"tokenFile": "token"}, name="first/config")
    write({"token": "three"}, {"server": "https://other"}, name="second/config", context="d")
    (tmp_path / "third").write_text(
        yaml.safe_dump(
            {
                "contexts": [{"name": "d", "context": {"cluster": "k", "user": "v", "namespace": "team"}}],
                "users": [{"name": "v", "user": {"token": "four"}}],
                "clusters": None,
            }
        )
    )
    paths = f"{first}/config:{second}/config:{tmp_path}/third"
    endpoint = await auth.load(paths)
    assert (endpoint.server, await endpoint.headers()) == ("https://127.0.0.1:1", {"Authorization": "Bearer one"})
    assert await (await auth.load(paths, "d")).headers() == {"Authorization": "Bearer four"}
    assert (auth.namespace(paths), auth.namespace(paths, "d")) == ("default", "team")


def oidc(**config):
    return {"auth-provider": {"name": "oidc", "config": config}}


async def test_users_from_before_plugins_are_asked_for_their_token_or_refused(write):
    parts = [b64(part).rstrip("=") for part in (b"{}", b'{"exp": 99999999999}', b"x")]
    endpoint = await auth.load(write(oidc(**{"id-token": ".".join(parts)})))
    assert await endpoint.headers() == {"Authorization": f"Bearer {'.'.join(parts)}"}
    await refused(write(oidc()), "the auth-provider oidc of a user in kubeconfig .* gave no token: oidc: No valid")
    await refused(write({"auth-provider": {"name": "azure"}}), "auth-provider 'azure' .* isn't supported; use an exec")


async def test_without_the_package_that_knows_providers_their_users_are_told(write, monkeypatch):
    monkeypatch.delitem(sys.modules, "muster.kube.authproviders", raising=False)
    monkeypatch.setitem(sys.modules, "kubernetes.aio.client", None)
    with monkeypatch.context() as patched:
        patched.delattr("muster.kube.authproviders", raising=False)
        await refused(
            write(oidc()), "auth-provider, which takes the Python package kubernetes: it isn't installed here"
        )


@pytest.mark.processes
async def test_the_kubernetes_package_is_not_imported_for_those_who_need_it_not(write):
    code = "import asyncio, sys; from muster.kube import auth; asyncio.run(auth.load(sys.argv[1])); print(*sys.modules)"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, write({"token": "t"}), stdout=asyncio.subprocess.PIPE
    )
    imported = (await process.communicate())[0].decode().split()
    assert "muster.kube.kubeconfig" in imported
    assert not {"kubernetes", "aiohttp", "requests"} & set(imported)
