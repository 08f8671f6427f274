"""What the API said last, kept in the runtime directory for an agent that starts while no API answers.

Like kube-proxy's rules it outlives processes, and no reboot. A file that cannot be read is none.
"""

import os
import zlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from speaker.agent.view import is_assigned
from speaker.api.kinds import AssignedObject, EipObject, HostObject, NodeObject, SliceObject
from speaker.errors import EdgeError
from speaker.system.decoding import UNFIT
from speaker.system.files import read_regular, shown, write_atomically

NAME = "known"
VERSION = 1
"""Another one is for another release."""
MAX_BYTES = 128 * 2**20
"""Ten thousand Services with three endpoints each take ten million."""
MAX_PACKED = 16 * 2**20
"""And one million when they are packed."""


class Known(msgspec.Struct, frozen=True):
    """``node``: None where the API knew none of our name."""

    version: int
    name: str
    node: NodeObject | None
    services: tuple[AssignedObject, ...]
    slices: tuple[SliceObject, ...]
    eips: tuple[EipObject, ...]
    hosts: tuple[HostObject, ...]


def known(
    name: str,
    node: NodeObject | None,
    services: Iterable[AssignedObject],
    slices: Iterable[SliceObject],
    eips: Iterable[EipObject],
    hosts: Iterable[HostObject],
) -> Known:
    """Of all that, what is about Services that have an EIP."""
    ours = tuple(filter(is_assigned, services))
    keys = {(each.metadata.namespace, each.metadata.name) for each in ours}
    theirs = (each for each in slices if (each.metadata.namespace, each.metadata.labels.service) in keys)
    return Known(VERSION, name, node, ours, tuple(theirs), tuple(eips), tuple(hosts))


def remember(directory: Path, found: Known) -> None:
    """Raises EdgeError, also where it is too much: then there is no file, rather than an old one."""
    path, body = directory / NAME, msgspec.json.encode(found)
    packed = zlib.compress(body, 1)
    if len(body) > MAX_BYTES or len(packed) > MAX_PACKED:
        path.unlink(missing_ok=True)
        raise EdgeError(f"{shown(path)}: {len(body)} bytes are too many to be kept")
    write_atomically(path, packed, mode=0o600)


def recall(directory: Path, name: str) -> Known | None:
    """None where nothing is known of this node. Raises EdgeError for what is there and cannot be used."""
    path = directory / NAME
    try:
        packed, stat = read_regular(path, MAX_PACKED)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EdgeError(f"{shown(path)}: {error.strerror}") from error
    if stat.st_uid != os.geteuid() or len(packed) > MAX_PACKED:
        raise EdgeError(f"{shown(path)}: it is not ours")
    try:
        unpacking = zlib.decompressobj()
        body = unpacking.decompress(packed, MAX_BYTES)
        if not unpacking.eof:
            raise EdgeError(f"{shown(path)}: cut short, or too long")
        found = msgspec.json.decode(body, type=Known)
    except (*UNFIT, zlib.error) as error:
        raise EdgeError(f"{shown(path)}: damaged: {error}") from error
    return found if (found.version, found.name) == (VERSION, name) else None
