"""Where it is told: a node with an EIP or two, and a broker beside it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from mqtt_broker import Broker, Here, missing

from speaker.lab.namespaces import Namespace


@pytest.fixture
def lan(new_namespace, wire, sh):
    """Two hosts on one segment, 198.51.100.0/24."""
    one, other = new_namespace("one"), new_namespace("other")
    wire(one, "eth0", other, "eth0")
    for host, address in ((one, "198.51.100.1/24"), (other, "198.51.100.2/24")):
        sh(host, f"ip addr add {address} dev eth0")
        host.sysctl("net.ipv4.ip_forward", 1)
    return one, other


@pytest.fixture
def new_broker(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """``new_broker(namespace, *lines)``: a mosquitto with these lines of configuration, which is not started yet."""
    if reason := missing():
        pytest.skip(reason)
    with ExitStack() as stack:

        def new(namespace: Namespace | Here, *lines: str, **how: Any) -> Broker:
            broker = Broker(namespace, tmp_path / "broker", *lines, **how)
            stack.callback(broker.close)
            return broker

        yield new
