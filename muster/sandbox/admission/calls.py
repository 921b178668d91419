"""How a webhook is reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class UnreachableWebhookError(Exception):
    """No HTTP answer came.

    Its text is the end of what Go's HTTP client says: ``dial tcp 127.0.0.1:9443: connect: connection refused``,
    ``context deadline exceeded``, ``tls: failed to verify certificate: x509: certificate signed by unknown authority``.
    """


class WebhookCaller(Protocol):
    """Posts an AdmissionReview. Over HTTPS in a running sandbox, in process in a simulation."""

    async def call(
        self, url: str, ca_bundle: bytes, body: bytes, *, within: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Post ``body`` as JSON and give status, headers (names in lower case) and body of the answer.

        ``ca_bundle`` is PEM; empty means the system's roots. ``within`` is in seconds. Redirects are not followed.

        Raises:
            UnreachableWebhookError: no answer came.
        """
        ...
