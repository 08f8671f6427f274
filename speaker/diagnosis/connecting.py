"""Edge: whether endpoints accept a connection from this node. All at once, and each for a moment."""

import asyncio
import errno
import os
import socket
from collections.abc import Collection
from ipaddress import ip_address

from speaker.diagnosis.facts import Tried

SECONDS = 1.0
MOST = 64
"""Endpoints that are tried."""


async def connect_all(places: Collection[tuple[str, int]]) -> tuple[Tried, ...]:
    return tuple(await asyncio.gather(*(_connect(*place) for place in sorted(set(places))[:MOST])))


async def _connect(address: str, port: int) -> Tried:
    family = socket.AF_INET if ip_address(address).version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as trying:
            async with asyncio.timeout(SECONDS):
                await asyncio.get_running_loop().sock_connect(trying, (address, port))
    except TimeoutError:
        return Tried(address, port, False, f"no answer within {SECONDS:g} s")
    except ConnectionRefusedError:
        return Tried(address, port, False, "refused")
    except OSError as error:
        return Tried(address, port, False, os.strerror(error.errno or errno.EIO))
    return Tried(address, port, True)
