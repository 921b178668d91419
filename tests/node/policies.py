"""NetworkPolicies as rules of nftables, for nodes whose network plugin enforces none.

It proves what the policies say, and no plugin: addresses are those that pods have when the rules are written, and what a
node itself sends to its pods is let through, as probes are everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_network
from typing import Any

TABLE = "inet policies"
_WORDS = {4: "ip", 6: "ip6"}
Json = Mapping[str, Any]


class PolicyRules:
    """The rules of a cluster's policies."""

    def __init__(self, policies: Sequence[Json], pods: Sequence[Json], namespaces: Sequence[Json]) -> None:
        self._policies = policies
        self._pods = [each for each in pods if _addresses(each) and not each["spec"].get("hostNetwork")]
        self._namespaces = {each["metadata"]["name"]: each["metadata"].get("labels", {}) for each in namespaces}

    def text(self) -> str:
        """Return the rules for ``nft -f``, which replace those of before."""
        chains: list[str] = []
        jumps: dict[str, list[str]] = {"Ingress": [], "Egress": []}
        for pod in self._pods:
            for direction, end in (("Ingress", "daddr"), ("Egress", "saddr")):
                if policies := [each for each in self._policies if self._selects(each, pod, direction)]:
                    name = f"{direction.lower()}-{len(chains)}"
                    allowed = [rule for each in policies for rule in self._allowed(each, pod, direction)]
                    chains.append(_chain(name, [*allowed, "counter drop"]))
                    jumps[direction] += [f"{_word(each)} {end} {each} jump {name}" for each in _addresses(pod)]
        # Answers; and neighbours of IPv6 find each other, which no policy speaks of.
        always = [
            "ct state established,related accept",
            "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept",
        ]
        forward = ["type filter hook forward priority 10;", *always, *jumps["Egress"], *jumps["Ingress"]]
        # What pods send to their own node, such as to the API server there.
        received = ["type filter hook input priority 10;", *always, *jumps["Egress"]]
        chains += [_chain("forward", forward), _chain("input", received)]
        return f"table {TABLE} {{}}\ndelete table {TABLE}\ntable {TABLE} {{\n{''.join(chains)}}}\n"

    def _selects(self, policy: Json, pod: Json, direction: str) -> bool:
        same = policy["metadata"]["namespace"] == pod["metadata"]["namespace"]
        return (
            same
            and direction in policy["spec"]["policyTypes"]
            and _matches(policy["spec"]["podSelector"], _labels(pod))
        )

    def _allowed(self, policy: Json, pod: Json, direction: str) -> Iterator[str]:
        peers, end = ("from", "saddr") if direction == "Ingress" else ("to", "daddr")
        for rule in policy["spec"].get(direction.lower(), ()):
            ports = list(_ports(rule.get("ports", ()), pod)) if rule.get("ports") else [""]
            networks = [net for peer in rule.get(peers, ()) for net in self._networks(peer, policy)] or None
            if rule.get(peers) and networks is None:
                continue
            for port in ports:
                for network in networks or [""]:
                    matched = f"{_word(network)} {end} {network} " if network else ""
                    yield f"{matched}{port}return".strip()

    def _networks(self, peer: Json, policy: Json) -> Iterator[str]:
        if block := peer.get("ipBlock"):
            assert not block.get("except"), "no policy of ours has exceptions"
            yield block["cidr"]
            return
        for pod in self._pods:
            space = pod["metadata"]["namespace"]
            spaces = peer.get("namespaceSelector")
            here = (
                space == policy["metadata"]["namespace"]
                if spaces is None
                else _matches(spaces, self._namespaces[space])
            )
            if here and _matches(peer.get("podSelector", {}), _labels(pod)):
                yield from _addresses(pod)


def _chain(name: str, rules: Sequence[str]) -> str:
    lines = "".join(f"    {each}\n" for each in rules)
    return f"  chain {name} {{\n{lines}  }}\n"


def _ports(ports: Sequence[Json], pod: Json) -> Iterator[str]:
    for each in ports:
        port = each["port"]
        if isinstance(port, str):
            named = [
                found
                for main in pod["spec"]["containers"]
                for found in main.get("ports", ())
                if found.get("name") == port
            ]
            yield from (f"{each['protocol'].lower()} dport {found['containerPort']} " for found in named)
        else:
            yield f"{each['protocol'].lower()} dport {port} "


def _matches(selector: Json, labels: Json) -> bool:
    assert set(selector) <= {"matchLabels"}, "no policy of ours has expressions"
    return selector.get("matchLabels", {}).items() <= labels.items()


def _labels(pod: Json) -> Json:
    labels: Json = pod["metadata"].get("labels", {})
    return labels


def _addresses(pod: Json) -> list[str]:
    running = pod["status"].get("phase") == "Running"
    return [each["ip"] for each in pod["status"].get("podIPs", ())] if running else []


def _word(address: str) -> str:
    return _WORDS[ip_network(address).version]
