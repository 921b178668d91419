"""The certificate authority of the webhooks, its rotation, and the writing of ``caBundle``.

What must hold of certificates, what to do next and the writers that do it live here; so does what a replica serves and
reports, and the certificate of a listener. Serving webhooks does not (``webhooks``), nor does what people type and read (``muster.cli.certs``).
"""
