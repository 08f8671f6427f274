"""Forwarding as a node sees it: one small protocol, and the function that opens the requested kind."""

from contextlib import suppress
from pathlib import Path
from typing import Protocol

from speaker.checks import Finding
from speaker.errors import EdgeError, Unsupported
from speaker.forwarding.changes import Change
from speaker.forwarding.ipvs.forwarder import open_ipvs
from speaker.forwarding.nftables.forwarder import open_assist, open_nftables
from speaker.forwarding.plan import UNKNOWN, Plan
from speaker.model import NO_GROUP, Forwarding, Group, Traffic
from speaker.settings import AS_THEY_ARE, Timeouts
from speaker.system.files import read_regular, write_atomically

TEND_SECONDS = 5.0
_FORWARDED = "forwarded"
"""File in the runtime directory: which kind has forwarded here since the last reboot."""
_LONGEST = max(len(kind.value) for kind in Forwarding)
_LEFT_BY = {
    "nftables": Finding(
        "left_behind",
        "the nftables forwarder ran on this node before, and its table still sends clients to the endpoints that it"
        " had then: `speaker cleanup`, in a cluster the cleanup manifest, or a reboot removes it",
        "speaker cleanup",
    ),
    "ipvs": Finding(
        "left_behind",
        "the ipvs forwarder ran on this node before, and left the EIPs bound: drain the node and reboot it (until then"
        " kube-proxy in ipvs mode keeps using its virtual servers)",
        "kubectl drain NODE --ignore-daemonsets   # then reboot it",
    ),
}


class Forwarder(Protocol):
    """One way to get an EIP's traffic to its endpoints. Every method raises EdgeError if the kernel refuses."""

    name: str

    async def apply(self, plan: Plan) -> tuple[Change, ...]:
        """Brings the kernel to ``plan``. Returns what was changed; a second call returns ()."""

    async def tend(self) -> tuple[Change, ...]:
        """To be called about every TEND_SECONDS: ends what was draining, and from time to time repairs what others have
        done to the kernel. Returns what was changed. Cheap if there is nothing to do, and () before the first
        ``apply``."""

    async def pending(self, plan: Plan) -> tuple[Change, ...]:
        """What ``apply`` would change; changes nothing."""

    def approximations(self, plan: Plan) -> tuple[str, ...]:
        """What this forwarder does differently from what was asked, a sentence each; nothing that stops traffic."""

    async def problems(self) -> tuple[Finding, ...]:
        """What would keep traffic from flowing, each a sentence with its remedy."""

    def traffic(self, *, real_servers: bool) -> Traffic:
        """Counters of the traffic. Called in a thread, as it takes long if there are many. Real servers only if asked
        for."""

    async def cleanup(self) -> tuple[str, ...]:
        """Removes everything that this kind of forwarder ever made on this node. Returns the names of what was
        removed."""


class NoForwarder:
    """``none``: kube-proxy or another program forwards."""

    name = "none"

    def __init__(self, runtime_dir: Path) -> None:
        self._runtime_dir = runtime_dir

    async def apply(self, plan: Plan) -> tuple[Change, ...]:
        return ()

    async def tend(self) -> tuple[Change, ...]:
        return ()

    async def pending(self, plan: Plan) -> tuple[Change, ...]:
        return ()

    def approximations(self, plan: Plan) -> tuple[str, ...]:
        return tuple(
            f"{server}: another program has to enforce loadBalancerSourceRanges, because the forwarder is none"
            for server in plan.virtual_servers.values()
            if server.sources
        )

    async def problems(self) -> tuple[Finding, ...]:
        """What another kind left would have been removed at our start, if we had the right to look."""
        kind = forwarded(self._runtime_dir)
        return (_LEFT_BY[kind],) if kind in _LEFT_BY else ()

    def traffic(self, *, real_servers: bool) -> Traffic:
        return UNKNOWN

    async def cleanup(self) -> tuple[str, ...]:
        return ()


def forwarded(runtime_dir: Path) -> str:
    """The kind of forwarder that left something here, as far as known; "" for none."""
    try:
        return read_regular(runtime_dir / _FORWARDED, _LONGEST)[0].decode()
    except (OSError, UnicodeDecodeError):
        return ""


def remember(runtime_dir: Path, kind: str) -> None:
    """From now on this kind forwards; "": nothing of any kind is left. Best effort, as it only serves a message."""
    path = runtime_dir / _FORWARDED
    with suppress(OSError, EdgeError):
        if kind:
            write_atomically(path, kind.encode())
        else:
            path.unlink(missing_ok=True)


async def open_forwarder(
    kind: Forwarding, runtime_dir: Path, timeouts: Timeouts = AS_THEY_ARE, group: Group = NO_GROUP
) -> Forwarder:
    """A forwarder that this kernel supports. ``runtime_dir``: for what must survive a restart but not a reboot.
    ``timeouts``: IPVS's. What it makes in the kernel belongs to ``group``.

    ``AUTO`` is IPVS if the kernel has it, else nftables. Raises Unsupported with the reason.
    """
    if kind is Forwarding.NONE:
        return NoForwarder(runtime_dir)
    if kind is Forwarding.NFTABLES:
        return await open_nftables(group)
    if kind is Forwarding.ASSIST:
        return await open_assist(group)
    try:
        return await open_ipvs(runtime_dir, timeouts, group)
    except Unsupported as no_ipvs:
        if kind is Forwarding.IPVS:
            raise
        try:
            return await open_nftables(group)
        except Unsupported as no_nftables:
            raise Unsupported(f"no forwarder works here: {no_ipvs}; {no_nftables}") from no_nftables


async def cleanup(runtime_dir: Path, keep: str, group: Group = NO_GROUP) -> tuple[str, ...]:
    """Removes everything that the group's forwarders of other kinds than ``keep`` ever made here."""
    removed: tuple[str, ...] = ()
    for each in (Forwarding.IPVS, Forwarding.NFTABLES, Forwarding.ASSIST):
        if each.value != keep:
            # What this kernel does not support has left nothing in it.
            with suppress(Unsupported):
                removed += await (await open_forwarder(each, runtime_dir, group=group)).cleanup()
    return removed
