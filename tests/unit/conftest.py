"""For unit tests: Hypothesis without deadlines, as a busy machine breaks no rule; objects as the API writes them;
the kernel's filter machine."""

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings

from speaker.cluster.kinds import EipObject, ServiceObject
from speaker.model import Mac
from speaker.packets.bpf import LOAD_PKTTYPE, Program
from speaker.packets.ethernet import PACKET_HOST

settings.register_profile("unit", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unit")

Json = dict[str, Any]


@pytest.fixture
def service_object() -> Callable[..., ServiceObject]:
    """``service_object("web", age=3, ingress=["192.0.2.10"])``; ``age`` in hours."""

    def made(name: str, *, age: int = 0, ingress: Any = (), conditions: Any = (), **parts: Any) -> ServiceObject:
        metadata = {
            "name": name,
            "namespace": "default",
            "uid": name,
            "resourceVersion": "7",
            "creationTimestamp": f"2026-01-01T{23 - age:02}:00:00Z",
            "annotations": {f"eip-speaker.io/{key}": value for key, value in parts.pop("annotations", {}).items()},
        }
        spec = {"type": "LoadBalancer", "loadBalancerClass": "eip-speaker.io/speaker", "ports": [{"port": 80}], **parts}
        status = {
            "loadBalancer": {"ingress": [{"ip": each, "ipMode": "VIP"} for each in ingress]},
            "conditions": list(conditions),
        }
        return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, ServiceObject)

    return made


@pytest.fixture
def eip_object() -> Callable[..., EipObject]:
    def made(name: str, *addresses: str, age: int = 0, status: Any = None, **parts: Any) -> EipObject:
        metadata = {
            "name": name,
            "uid": name,
            "resourceVersion": "7",
            "generation": 1,
            "creationTimestamp": f"2026-01-01T{23 - age:02}:00:00Z",
            **parts.pop("metadata", {}),
        }
        spec = {"addresses": list(addresses), **parts}
        return msgspec.convert({"metadata": metadata, "spec": spec, "status": status or {}}, EipObject)

    return made


@pytest.fixture(scope="session")
def lan() -> SimpleNamespace:
    """Addresses that every test of packets speaks of."""
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


@pytest.fixture(scope="session")
def accepts() -> Callable[..., bool]:
    """``accepts(program, frame)``: classic BPF as in Documentation/networking/filter.rst, as far as ours uses it."""

    def run(program: Program, frame: bytes, pkttype: int = PACKET_HOST) -> bool:
        accumulator, at = 0, 0
        while True:
            code, jt, jf, k = instruction = program[at]
            at += 1
            match code:
                case 0x30 if instruction == LOAD_PKTTYPE:
                    accumulator = pkttype
                case 0x20 | 0x28 | 0x30:
                    size = {0x20: 4, 0x28: 2, 0x30: 1}[code]
                    if k + size > len(frame):
                        return False
                    accumulator = int.from_bytes(frame[k : k + size], "big")
                case 0x05:
                    at += k
                case 0x15:
                    at += jt if accumulator == k else jf
                case 0x25:
                    at += jt if accumulator > k else jf
                case 0x35:
                    at += jt if accumulator >= k else jf
                case 0x06:
                    return k > 0
                case _:
                    raise AssertionError(f"unknown instruction {code:#x}")

    return run
