"""What is asked of the speakers, and what follows from it for neighbours. Pure."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from typing import Any

import yaml

FIRST, FIRST_OF_LONE = IPv4Address("10.99.0.1"), IPv4Address("10.98.0.1")
A_SUBNET = 250
"""EIPs from each /24: pools leave out .0 and .255."""
A_FILE = 10
"""Services in one manifest."""
UNTOUCHED = 20
"""Services, the first ones, that nobody edits: they are watched all the time."""


def eips(count: int, first: IPv4Address = FIRST) -> list[IPv4Address]:
    return [first + 256 * (at // A_SUBNET) + at % A_SUBNET for at in range(count)]


@dataclass(frozen=True, slots=True)
class Wish:
    """A Service. ``nodes``: where it has a ready endpoint; ``local``: only such a node may hold its EIP."""

    eip: IPv4Address
    nodes: tuple[str, ...]
    there: bool = True
    local: bool = False
    port: int = 80
    ranges: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"s-{str(self.eip).replace('.', '-')}"

    def may_hold(self, nodes: Collection[str]) -> frozenset[str]:
        """Which of ``nodes``."""
        if not self.there:
            return frozenset()
        return frozenset(nodes) & frozenset(self.nodes) if self.local else frozenset(nodes)

    def objects(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        spec = {
            "type": "LoadBalancer",
            "loadBalancerClass": "eip-speaker.io/speaker",
            "ipFamilies": ["IPv4"],
            "externalTrafficPolicy": "Local" if self.local else "Cluster",
            "ports": [{"protocol": "TCP", "port": self.port, "targetPort": 8080}],
        }
        if self.ranges:
            spec["loadBalancerSourceRanges"] = list(self.ranges)
        asked = {"eip-speaker.io/addresses": str(self.eip)}
        return (
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"namespace": "many", "name": self.name, "annotations": asked},
                "spec": spec,
            },
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "namespace": "many",
                    "name": self.name,
                    "labels": {"kubernetes.io/service-name": self.name},
                },
                "addressType": "IPv4",
                "ports": [{"protocol": "TCP", "port": 8080}],
                "endpoints": [{"addresses": [f"10.244.{node[4:]}.11"], "nodeName": node} for node in self.nodes],
            },
        )


def first_wishes(count: int, nodes: Sequence[str], first: IPv4Address = FIRST) -> list[Wish]:
    return [Wish(eip, tuple(nodes)) for eip in eips(count, first)]


def edited(wish: Wish, nodes: Sequence[str], dice: random.Random) -> tuple[str, Wish]:
    """One thing about it is another, and what."""
    match dice.choice(("port", "ranges", "policy", "endpoints", "endpoints", "endpoints", "there", "there")):
        case "port":
            return "edit", replace(wish, port=dice.randint(1, 65535))
        case "ranges":
            some = dice.sample(("192.0.2.0/24", "198.51.100.0/24", "10.0.0.0/8"), dice.randint(0, 2))
            return "edit", replace(wish, ranges=tuple(sorted(some)))
        case "policy":
            return "edit", replace(wish, local=not wish.local)
        case "endpoints":
            some = dice.sample(list(nodes), dice.randint(0, len(nodes)))
            return "endpoints", replace(wish, nodes=tuple(sorted(some)))
        case _:
            return "deletion" if wish.there else "creation", replace(wish, there=not wish.there)


def manifest(wishes: Sequence[Wish]) -> str:
    text: str = yaml.dump_all(
        [thing for wish in wishes if wish.there for thing in wish.objects()], Dumper=yaml.CSafeDumper
    )
    return text


def pool(count: int, first: IPv4Address = FIRST) -> str:
    last = eips(count, first)[-1]
    text: str = yaml.safe_dump(
        {
            "apiVersion": "eip-speaker.io/v1alpha1",
            "kind": "Eip",
            "metadata": {"name": "many"},
            "spec": {"addresses": [f"{first}-{last}"], "interface": "eth0"},
        }
    )
    return text


def bad_manifest(dice: random.Random) -> bytes:
    return dice.choice(
        (
            b"kind: [",
            b"\xff\xfe\x00",
            b"apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {ports: [{port: 70000}]}\n",
            b"apiVersion: eip-speaker.io/v1alpha1\nkind: Eip\nmetadata: {name: many}\nspec: {addresses: [nonsense]}\n",
            dice.randbytes(200),
        )
    )
