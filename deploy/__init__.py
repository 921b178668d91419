"""Files that describe Muster to a cluster: CRDs, roles, webhook configurations. Data only; read by the CLI."""
