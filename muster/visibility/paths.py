"""The API's group, version and root: for those who serve it, and for those who ask it."""

from __future__ import annotations

from typing import Final

GROUP: Final = "visibility.muster.sh"
VERSION: Final = "v1alpha1"
ROOT: Final = f"/apis/{GROUP}/{VERSION}"
