"""The content of a kubeconfig or a service account, as values."""

from __future__ import annotations

from msgspec import Struct


class ConnectionSettings(Struct, frozen=True):
    """What a kubeconfig says, once it has been read and its plugin was run. PEM texts are empty where there are none.

    Attributes:
        source: the file, for messages.
        authorization: value of the header; empty when certificates alone identify us.
        fresh_for: seconds after which to read it all again; None: when the server says 401.
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
