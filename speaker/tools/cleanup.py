"""``speaker cleanup``: removes what the speaker made in this kernel, or says what it could not check."""

import argparse
import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from speaker.errors import EdgeError, Unsupported
from speaker.forwarding.forwarder import NoForwarder, forwarded, open_forwarder, remember
from speaker.forwarding.handing_over import FAMILIES, STRAYS_TABLE
from speaker.forwarding.nftables.nft import stamp
from speaker.forwarding.nftables.skeletons import ASSIST_TABLE, GUARD_TABLE, TABLE
from speaker.forwarding.unknown_flows import open_unknown_flows
from speaker.layer2.kernel import detach_filter
from speaker.model import NO_GROUP, Forwarding, Group
from speaker.node.control import ask, read_answer
from speaker.node.known.knowledge import Knowledge
from speaker.ownership.hellos.frames import magic
from speaker.system.files import only_one
from speaker.system.process import may_administer_network
from speaker.tools.terminal import write

ANSWERS = "answers"
ANSWER_SECONDS = 2.0
"""For the answer of a speaker that runs here."""


class Part(NamedTuple):
    """``remove`` returns the names of what it removed; ``left`` are names that show, without its help, that there is
    work for it."""

    name: str
    remove: Callable[[], Awaitable[tuple[str, ...]]]
    left: Callable[[], tuple[str, ...]]


def command(args: argparse.Namespace) -> int:
    return asyncio.run(_cleanup(Forwarding(args.forwarder), args.runtime_dir, args.group))


async def _cleanup(kind: Forwarding, runtime_dir: Path, group: Group) -> int:
    """Every kind of forwarder for AUTO, and that group alone. Prints what it removed. Returns 1 if something is left,
    or may be.

    Raises EdgeError if it may not look, or if a speaker that forwards runs here.
    """
    if not may_administer_network():
        raise EdgeError("cleanup needs CAP_NET_ADMIN (root): nothing was examined or removed")
    with ExitStack() as stack:
        parts = _parts(kind, runtime_dir, group)
        try:
            stack.enter_context(only_one(runtime_dir / "lock"))
        except EdgeError as error:
            if not isinstance(error.__cause__, BlockingIOError):
                raise
            # Without forwarding, nftables' table is nobody's. IPVS's entries may be kube-proxy's by now.
            if not _leaves_it_alone(runtime_dir) or (kind is not Forwarding.NFTABLES and _ipvs_left(group)):
                why = "stop it first (SIGTERM), or its EIPs are answered and not forwarded"
                raise EdgeError(f"{error}: {why}") from error
            parts = tuple(
                _beside(part, runtime_dir) for part in parts if part.name not in (Forwarding.IPVS.value, ANSWERS)
            )
        removed, left = await clean(parts)
        if not left and (kind is Forwarding.AUTO or kind.value == forwarded(runtime_dir)):
            remember(runtime_dir, "")
    write(sys.stdout, removed if removed or left else ["there was nothing to remove"])
    for line in left:
        print(f"speaker: {line}", file=sys.stderr)  # noqa: T201 -- a command's word to its user
    return 1 if left else 0


def _leaves_it_alone(runtime_dir: Path) -> bool:
    """Whether the running speaker says that it neither forwards nor hands over."""
    try:
        (answer,) = ask(runtime_dir, "facts", ANSWER_SECONDS, about="")
        known = read_answer(answer.get("knowledge"), Knowledge)
    except EdgeError:
        return False
    return known.forwarder == NoForwarder.name and not known.hands_over


def _beside(part: Part, runtime_dir: Path) -> Part:
    """The same part, but left alone if another speaker has started meanwhile."""

    async def remove() -> tuple[str, ...]:
        if not _leaves_it_alone(runtime_dir):
            raise EdgeError("left alone: another speaker runs here now, and this may belong to it")
        return await part.remove()

    return part._replace(remove=remove)


async def clean(parts: tuple[Part, ...]) -> tuple[list[str], list[str]]:
    """What was removed, and what was not, with the reason. A failure of one part does not affect the others."""
    removed: list[str] = []
    left: list[str] = []
    for part in parts:
        try:
            removed += await part.remove()
        except Unsupported as error:  # usually, what this kernel does not support has left nothing in it
            left += (f"{name} is still there: {error}" for name in part.left())
        except EdgeError as error:
            left.append(f"{part.name}: {error}")
    return removed, left


def _parts(kind: Forwarding, runtime_dir: Path, group: Group) -> tuple[Part, ...]:
    """The part that hands unknown flows over goes first: it may exist beside any forwarder."""

    def of(each: Forwarding) -> Callable[[], Awaitable[tuple[str, ...]]]:
        async def remove() -> tuple[str, ...]:
            return await (await open_forwarder(each, runtime_dir, group=group)).cleanup()

        return remove

    async def remove_unknown_flows() -> tuple[str, ...]:
        return await (await open_unknown_flows(group)).cleanup()

    async def remove_answers() -> tuple[str, ...]:
        magics = {magic(group)} | ({b""} if group == NO_GROUP else set())
        links = [link for link in socket.if_nameindex() for each in magics if detach_filter(link[0], each)]
        return tuple(f"answers in the kernel on link {name}" for _, name in links)

    kinds = (Forwarding.IPVS, Forwarding.NFTABLES, Forwarding.ASSIST) if kind is Forwarding.AUTO else (kind,)
    forwarders = (Part(each.value, of(each), partial(_LEFT[each], group)) for each in kinds)
    strays = Part("strays", remove_unknown_flows, partial(_unknown_flows_left, group))
    return (Part(ANSWERS, remove_answers, tuple), strays, *forwarders)


def _tables_left(*tables: tuple[str, str]) -> tuple[str, ...]:
    """``family name`` of each, asked of the kernel directly, without the program nft."""
    return tuple(f"nftables table {family} {name}" for family, name in tables if _is_there(family, name))


def _is_there(family: str, name: str) -> bool:
    try:
        return stamp(name, family).table is not None
    except EdgeError:  # a kernel without nftables
        return False


def _unknown_flows_left(group: Group) -> tuple[str, ...]:
    return _tables_left(*((family, group.table(STRAYS_TABLE)) for family in FAMILIES.values()))


def _ipvs_left(group: Group) -> tuple[str, ...]:
    links = (f"link {name}" for _, name in socket.if_nameindex() if name == group.link)
    return (*links, *_tables_left(("inet", group.table(GUARD_TABLE))))


_LEFT: dict[Forwarding, Callable[[Group], tuple[str, ...]]] = {
    Forwarding.NONE: lambda group: (),
    Forwarding.IPVS: _ipvs_left,
    Forwarding.NFTABLES: lambda group: _tables_left(("inet", group.table(TABLE))),
    Forwarding.ASSIST: lambda group: _tables_left(("inet", group.table(ASSIST_TABLE))),
}
