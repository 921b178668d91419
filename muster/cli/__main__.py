"""``python -m muster.cli``: the same as ``muster``."""

from muster.cli.main import main

main()
