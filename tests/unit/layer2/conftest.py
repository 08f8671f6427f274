"""Addresses every test of layer 2 speaks of, and what claims two EIPs."""

from ipaddress import IPv4Address, IPv6Address
from types import SimpleNamespace

import pytest

from speaker.layer2.claims import Claims
from speaker.model import Mac


@pytest.fixture(scope="session")
def lan() -> SimpleNamespace:
    return SimpleNamespace(
        mac=Mac(bytes.fromhex("02000000aa01")),
        stranger=Mac(bytes.fromhex("02000000bb02")),
        eip4=IPv4Address("192.0.2.10"),
        other4=IPv4Address("192.0.2.11"),
        foreign4=IPv4Address("192.0.2.99"),
        asker4=IPv4Address("192.0.2.2"),
        eip6=IPv6Address("2001:db8::10"),
        other6=IPv6Address("2001:db8::11"),
        foreign6=IPv6Address("2001:db8::99"),
        asker6=IPv6Address("2001:db8::2"),
    )


@pytest.fixture
def claims(lan) -> Claims:
    claims = Claims(lan.mac)
    for address in (lan.eip4, lan.other4, lan.eip6, lan.other6):
        claims.add(address.packed)
    claims.deadline = 100.0
    return claims
