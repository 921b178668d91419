"""Namespaces: a label that says whether one names a queue."""

from __future__ import annotations

from muster.model import names
from muster.model.objects import Namespace
from webhooks.patch import PatchRecorder
from webhooks.review import AdmissionRequest
from webhooks.settings import WebhookSettings
from webhooks.verdict import ALLOWED, Patched, Verdict
from webhooks.view import AdmissionView


def mutate(request: AdmissionRequest, _: AdmissionView, __: WebhookSettings) -> Verdict:
    """Label a namespace whose annotation names a queue, in the same write: the next group may come at once."""
    meta = request.new(Namespace).metadata
    names_queue = any(meta.annotation(key) for key in names.QUEUE_NAME_KEYS)
    patch = PatchRecorder(request.object)
    if names_queue:
        patch.set("metadata", "labels", names.NAMES_QUEUE, value="true")
    return Patched(patch.operations) if patch.operations else ALLOWED
