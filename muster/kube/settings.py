"""The content of a kubeconfig or a service account, as values."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class Overrides(Struct, frozen=True):
    """What kubectl's global flags state instead of a kubeconfig. Empty: what the kubeconfig says.

    Attributes:
        cluster: name of one of the kubeconfig's clusters.
        user: name of one of its users.
        server: URL.
        token: a bearer token; takes the place of every credential of the user.
        authority: path of a file of CA certificates.
        insecure: whether the server's certificate isn't verified.
        server_name: what the certificate must name, where that isn't the host of the URL.
        impersonate: the user to act as.
        groups: the groups to act as.
    """

    cluster: str = ""
    user: str = ""
    server: str = ""
    token: str = ""
    authority: str = ""
    insecure: bool = False
    server_name: str = ""
    impersonate: str = ""
    groups: tuple[str, ...] = ()


NO_OVERRIDES: Final = Overrides()


class ConnectionSettings(Struct, frozen=True):
    """What a kubeconfig says, once it has been read and its plugin was run. PEM texts are empty where there are none.

    Attributes:
        source: the file, for messages.
        authorization: value of the header; empty when certificates alone identify us.
        fresh_for: seconds after which to read it all again; None: when the server says 401.
        identity: for messages: which context and user of the source this is; empty where there is none.
    """

    source: str
    server: str
    authority: str = ""
    certificate: str = ""
    key: str = ""
    authorization: str = ""
    server_name: str = ""
    proxy: str = ""
    verify: bool = True
    fresh_for: float | None = None
    identity: str = ""
