"""The steps between a decoded request and its storage: mutation, defaults, validation, policies, webhooks, quota.

In the order of the real server. Reads configurations from the store; writes only the usage of ResourceQuotas.
"""

from muster.sandbox.admission.attributes import Attributes
from muster.sandbox.admission.calls import UnreachableWebhookError, WebhookCaller
from muster.sandbox.admission.chain import AdmissionChain

__all__ = ["AdmissionChain", "Attributes", "UnreachableWebhookError", "WebhookCaller"]
