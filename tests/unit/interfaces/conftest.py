"""Snapshots written the way people write routes."""

from ipaddress import ip_address, ip_interface, ip_network

import pytest

from speaker.interfaces.snapshot import LinkAddress, NextHop, Route, RouteTables, Rule, Snapshot
from speaker.model import Link, Mac


@pytest.fixture
def link():
    def make(index: int, name: str, **fields) -> Link:
        return Link(index=index, name=name, mac=Mac(bytes((2, 0, 0, 0, 0, index))), **fields)

    return make


@pytest.fixture
def route():
    """``route("10.0.0.0/8", 1, 2)``: through links 1 and 2; a negative index is a dead next hop."""

    def make(destination: str, *links: int, table: int = 254, **fields) -> Route:
        network = ip_network(destination)
        hops = tuple(NextHop(abs(index), dead=index < 0) for index in links)
        prefix = int(network.network_address)
        return Route(network.version, table, prefix, network.prefixlen, hops, **fields)

    return make


@pytest.fixture
def rule():
    def make(priority: int, *, to: str | None = None, source: str | None = None, version: int = 4, **fields) -> Rule:
        return Rule(
            version,
            priority,
            destination=ip_network(to) if to else None,
            source=ip_network(source) if source else None,
            **fields,
        )

    return make


@pytest.fixture
def snapshot(rule):
    """Links, routes and addresses (``(1, "192.0.2.5/24")``); the kernel's default rules unless others are given."""

    def make(*, links=(), routes=(), rules=None, addresses=(), groups=None) -> Snapshot:
        if rules is None:
            rules = [rule(0, table=255), rule(32766), rule(0, table=255, version=6), rule(32766, version=6)]
        bound = [(index, ip_interface(text)) for index, text in addresses]
        return Snapshot(
            links={link.index: link for link in links},
            addresses=tuple(LinkAddress(index, ip_address(at.ip), at.network) for index, at in bound),
            rules=tuple(rules),
            routes=RouteTables(routes),
            groups=groups or {},
        )

    return make
