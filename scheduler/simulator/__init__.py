"""The scheduler on given state: what `muster simulate` runs."""
