"""The certificate authority of the webhooks, its rotation, and the writing of ``caBundle``."""
