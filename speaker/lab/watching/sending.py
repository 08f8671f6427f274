"""What ``outage`` sends with: sockets made inside a namespace, and the processes of ``prober.py`` that use them."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_address
from math import inf
from mmap import mmap
from typing import Any

from speaker.lab.network.namespaces import Namespace
from speaker.lab.watching.prober import SO_TIMESTAMPNS, slot
from speaker.model import IPAddress
from speaker.packets.sockets import enlarge
from speaker.system.threads import in_thread

LONGEST = 600.0
"""Seconds after which no more probes are sent; the memory they would need is made only when it is used."""
BUFFER = 4 << 20
"""Bytes; the kernel's default holds 50 ms of 5,000 probes a second."""
IPV6_RECVPKTINFO = 49  # <linux/in6.h>

Order = Mapping[str, Any]
"""What ``prober.main`` reads."""


@asynccontextmanager
async def sending(
    order: Order, count: int, interval: float, sockets: Sequence[socket.socket]
) -> AsyncIterator[tuple[mmap, subprocess.Popen[str]]]:
    """A sender to ``count`` targets, each probed every ``interval`` seconds; and the memory that it shares.

    At the end of the block it stops sending, and the last answers are waited for. The memory stays readable.
    """
    memory_fd = os.memfd_create("probes")
    try:
        os.ftruncate(memory_fd, slot(int(LONGEST / interval) * count))
        memory = mmap(memory_fd, 0)
        with started({**order, "interval": interval, "memory": memory_fd}, sockets, memory_fd) as process:
            yield memory, process
            assert process.stdin is not None
            process.stdin.close()
            await in_thread(process.wait, within=inf)
    finally:
        os.close(memory_fd)


@contextmanager
def started(order: Order, sockets: Sequence[socket.socket], *fds: int) -> Iterator[subprocess.Popen[str]]:
    """``prober.py`` with these sockets; the end of its input ends it."""
    numbers = [sock.fileno() for sock in sockets]
    with subprocess.Popen(
        [sys.executable, "-m", "speaker.lab.watching.prober"],
        stdin=subprocess.PIPE,
        text=True,
        pass_fds=(*numbers, *fds),
        start_new_session=True,  # a Ctrl-C at the terminal is for the lab
    ) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps({**order, "sockets": numbers}) + "\n")
        process.stdin.flush()
        yield process


def own_address(towards: IPAddress) -> IPAddress:
    """The address from which this namespace would send there; sends nothing."""
    family = socket.AF_INET6 if towards.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.connect((str(towards), 9))
        return ip_address(sock.getsockname()[0])


def _udp_socket(namespace: Namespace, version: int) -> socket.socket:
    with namespace.entered():
        sock = socket.socket(socket.AF_INET6 if version == 6 else socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    enlarge(sock, BUFFER)
    return sock


def probe_socket(namespace: Namespace, version: int) -> socket.socket:
    """One for each EIP, with room for a few datagrams only.

    While the kernel does not know where an EIP is, it keeps what was sent there, to send it later. In one socket for
    all that takes the others' room, and it has probes answered from a time in which nobody answered.
    """
    sock = _udp_socket(namespace, version)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 0)  # the least that the kernel grants (SOCK_MIN_SNDBUF)
    return sock


def echo_socket(namespace: Namespace, port: int) -> socket.socket:
    sock = _udp_socket(namespace, 6)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVPKTINFO, 1)
    sock.bind(("::", port))
    return sock
