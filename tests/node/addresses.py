"""The addresses of nodes, pods and Services of each IP family, as inside.sh has them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """An IP family."""

    number: int
    services: str
    all_pods: str
    everywhere: str

    def node(self, number: int) -> str:
        """Return the address of a node."""
        return f"10.77.0.{number}" if self.number == 4 else f"fd77::{number}"

    def in_url(self, number: int) -> str:
        """Return the address of a node as a URL has it."""
        return self.node(number) if self.number == 4 else f"[{self.node(number)}]"

    def pods(self, number: int) -> str:
        """Return the network of a node's pods."""
        return f"10.88.{number}.0/24" if self.number == 4 else f"fd88:0:0:{number}::/64"


FAMILIES = {
    4: Family(4, "10.96.0.0/24", "10.88.0.0/16", "0.0.0.0/0"),
    6: Family(6, "fd96::/112", "fd88::/48", "::/0"),
}
