"""The server's certificate, swapped in a live listener.

A listening context never loads a second certificate: a pair that doesn't match would take the listener down. Each
change builds a fresh context, and the listening one hands new connections to it as they arrive.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from msgspec import Struct

from muster.kube.clock import Clock, SystemClock

POLL: Final = 2.0
"""Seconds between two looks at the files: a few kilobytes, and what a rotation waits for."""

log = logging.getLogger(__name__)


class ServingCertificateError(Exception):
    """No certificate to serve with. The text names the file and says what to do."""


class CertificateFiles(Struct, frozen=True):
    """Where the certificate is: ``tls.crt`` and ``tls.key`` in ``folder``, as a Secret of type TLS is mounted.

    ``clients`` is a bundle of authorities; with it, only callers with a certificate of theirs are served.
    """

    folder: Path
    clients: Path | None = None

    def current(self) -> tuple[Path, Path]:
        """Return certificate and key of one version: a mounted Secret changes by the one link ``..data``."""
        data = self.folder / "..data"
        folder = data.resolve() if data.exists() else self.folder
        return folder / "tls.crt", folder / "tls.key"

    async def arrived(self) -> None:
        """Wait until there is something in the files: a Secret that is mounted may have yet to be filled.

        Raises:
            CertificateError: there is no such folder, which nothing will appear in.
        """
        if not self.folder.is_dir():
            raise ServingCertificateError(
                f"{self.folder} is not a folder; run `muster certs export --folder {self.folder}`"
            )
        if self._empty():
            text = "%s holds no certificate yet: `muster certs run` issues it, or `muster certs init`"
            log.warning(text, self.folder)
        while self._empty():  # noqa: ASYNC110 - files tell nobody that they are written
            await asyncio.sleep(POLL)

    def _empty(self) -> bool:
        return not all(path.is_file() and path.stat().st_size for path in self.current())

    def fingerprint(self) -> str:
        """Hash what the files hold now.

        Raises:
            CertificateError: one can't be read.
        """
        try:
            parts = [path.read_bytes() for path in (*self.current(), *((self.clients,) if self.clients else ()))]
        except OSError as error:
            raise ServingCertificateError(f"{error.filename}: {error.strerror}; run `muster certs init`") from error
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


class _Loaded(Struct, frozen=True):
    context: ssl.SSLContext
    fingerprint: str
    not_after: datetime


class LiveCertificate:
    """A listening context whose certificate follows the files.

    Attributes:
        listening: give this to the listener, once and for all.
        trouble: why the files' present content isn't served, one line; empty while it is.
    """

    def __init__(
        self,
        files: CertificateFiles,
        clock: Clock | None = None,
        *,
        changed: Callable[[datetime], None] = lambda _: None,
        stale: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Load the first certificate; ``changed`` is told the end of each, ``stale`` whether a newer one can't be served.

        Raises:
            CertificateError: there is none that can be served.
        """
        self._files = files
        self._clock = clock or SystemClock()
        self._changed = changed
        self._stale = stale
        self.trouble = ""
        self._served = _load(files)
        self._changed(self._served.not_after)
        self.listening = _context(files)
        self.listening.sni_callback = self._hand_over

    def problems(self) -> list[str]:
        """Say why this certificate isn't good to serve with; nothing when it is.

        That the files hold something else, which can't be served, is `trouble` and no reason to turn callers away: it
        is so on all replicas at once.
        """
        if self._served.not_after > self._clock.now():
            return []
        expired = f"the certificate ended on {self._served.not_after:%Y-%m-%d %H:%M} UTC"
        return [expired, *([self.trouble] if self.trouble else [])]

    def state(self) -> dict[str, str]:
        """Say what is served, for a person who looks for a fault."""
        return {"notAfter": self._served.not_after.isoformat(), "trouble": self.trouble}

    def refresh(self) -> None:
        """Serve what the files hold now, unless they hold no matching pair: then go on as before."""
        try:
            if self._files.fingerprint() != self._served.fingerprint:
                self._served = _load(self._files)
                self._changed(self._served.not_after)
                log.info("serving a new certificate, good until %s", self._served.not_after.isoformat())
        except ServingCertificateError as error:
            if self.trouble != str(error):
                log.warning("the certificate was not replaced: %s", error)
            self.trouble = str(error)
        else:
            self.trouble = ""
        self._stale(bool(self.trouble))

    async def run(self) -> None:
        """Follow the files, until cancelled."""
        while True:
            await asyncio.sleep(POLL)
            self.refresh()

    def _hand_over(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self._served.context


def _load(files: CertificateFiles) -> _Loaded:
    before = files.fingerprint()
    certificate, _ = files.current()
    context = _context(files)
    try:
        not_after = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    except (OSError, ValueError) as error:
        raise ServingCertificateError(f"{certificate} holds no certificate: {error}") from error
    if files.fingerprint() != before:
        raise ServingCertificateError(f"{certificate} is being written")
    return _Loaded(context, before, not_after)


def _context(files: CertificateFiles) -> ssl.SSLContext:
    certificate, key = files.current()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The API server speaks HTTP/1.1 to a server that offers nothing else.
    context.set_alpn_protocols(["http/1.1"])
    # The API server never resumes a session; and one that is resumed is asked for no certificate.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    try:
        context.load_cert_chain(certificate, key)
        if files.clients is not None:
            context.load_verify_locations(files.clients)
            # Not handed over with a context: it holds because the listening one has it from the start.
            context.verify_mode = ssl.CERT_REQUIRED
            # Before 1.3 sessions are resumed without tickets, too.
            context.minimum_version = ssl.TLSVersion.TLSv1_3
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or error.strerror or error
        raise ServingCertificateError(f"{certificate} and {key.name} can't be served: {reason}") from error
    return context
