"""The lines that kubectl prints for an API server's refusal: measured, see docs/decisions/0053. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muster.whatif.verdicts import DryRunResult


def text(answer: DryRunResult) -> str:
    """Write an answer that isn't yes as `kubectl apply -f` does.

    Of a change that is refused kubectl prints the whole patch, too, which is left out here.
    """
    status: dict[str, Any] = answer.status or {}
    message, reason = str(status.get("message") or ""), str(status.get("reason") or "")
    if reason == "Invalid":
        return _invalid(status, message)
    doing = "error when creating" if answer.created else "error when applying a patch to"
    named = f"Error from server ({reason})" if reason else "Error from server"
    return f'{named}: {doing} "{answer.manifest.file}": {message}'


def _invalid(status: dict[str, Any], message: str) -> str:
    details = status.get("details") or {}
    if not details.get("kind"):
        return f"The request is invalid: {message}"
    causes = [f"{each['field']}: {each['message']}" for each in details.get("causes") or ()]
    subject = f'The {details["kind"]} "{details.get("name", "")}" is invalid'
    if len(causes) == 1:
        return f"{subject}: {causes[0]}"
    return "\n".join([f"{subject}:", *(f"* {each}" for each in causes)]) if causes else subject
