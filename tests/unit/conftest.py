"""For unit tests: Hypothesis without deadlines, as a busy machine breaks no rule; objects as the API writes them;
the kernel's filter machine; a loop in virtual time."""

import asyncio
import os
import selectors
from collections.abc import Callable, Coroutine, Iterator
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from examples import PROFILE, examples
from hypothesis import HealthCheck, settings

from speaker.api.kinds import EipObject, ServiceObject
from speaker.model import Mac
from speaker.packets import PACKET_HOST
from speaker.packets.bpf import LOAD_PKTTYPE, Program

settings.register_profile(
    PROFILE, settings(), max_examples=examples(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(PROFILE)

Json = dict[str, Any]


@pytest.fixture
def closed_off(tmp_path: Path) -> Iterator[Path]:
    """A directory that nobody may look into; for the length of a test it is not root's, whom nothing stops."""
    tmp_path.chmod(0)
    us = os.geteuid()
    if us == 0:
        try:
            os.seteuid(65534)
        except OSError:
            pytest.skip("root of a user namespace that has no other user")
    try:
        yield tmp_path
    finally:
        os.seteuid(us)
        tmp_path.chmod(0o700)


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
        accumulator, index, at = 0, 0, 0
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
                case 0x00:
                    accumulator = k
                case 0x07:
                    index = accumulator
                case 0x87:
                    accumulator = index
                case 0x54:
                    accumulator &= k
                case 0x6C:
                    accumulator = accumulator << index & 0xFFFFFFFF
                case 0x74:
                    accumulator >>= k
                case 0x05:
                    at += k
                case 0x15:
                    at += jt if accumulator == k else jf
                case 0x25:
                    at += jt if accumulator > k else jf
                case 0x35:
                    at += jt if accumulator >= k else jf
                case 0x45:
                    at += jt if accumulator & k else jf
                case 0x06:
                    return k > 0
                case _:
                    raise AssertionError(f"unknown instruction {code:#x}")

    return run


class _Skipping(selectors.DefaultSelector):
    """Passes the time that the loop would wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.threads = 0.0, 0

    def select(self, timeout: float | None = None) -> Any:
        if timeout and not self.threads:
            if not (found := super().select(0)):
                self.now += timeout
            return found
        if timeout == 0:
            return super().select(0)
        found = super().select(PATIENCE)
        assert found, "everybody waits for ever"
        return found


PATIENCE = 30.0
"""Seconds that pass for nobody: a guard against a hang, not an expectation."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes only while nobody has anything to do, and then at once. What a thread does is waited for."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now

    def run_in_executor(self, *call: Any) -> Any:
        def done(_: object) -> None:
            self._skipping.threads -= 1

        self._skipping.threads += 1
        future = super().run_in_executor(*call)
        future.add_done_callback(done)
        return future


@pytest.fixture
def in_virtual_time() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """``in_virtual_time(story())`` plays a coroutine whose loop begins at 0 s and never waits."""

    def play(story: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(story)

    return play
