"""What IPVS lacks, where a kernel has iptables but no nft: the guard, source ranges, masquerade.

``script`` is pure: from what ``iptables-save`` printed and a plan to the transaction for ``iptables-restore``. Rules
are written as iptables-save prints them, so that text tells whether anything is to be done. The class is the edge.
A packet costs a rule for every EIP, and one to an EIP another for every virtual server: nft does better.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from speaker.errors import EdgeError, NotDone, Unsupported
from speaker.forwarding.changes import AddRealServer, Change, ChangeRealServer, RemoveRealServer
from speaker.forwarding.plan import Plan, VirtualServer, by_address
from speaker.model import IPAddress, IPNetwork
from speaker.system.programs import run as run_program
from speaker.system.threads import in_thread

EIPS, GUARD, SPOOFED, MASQUERADE = "EIP-SPEAKER", "EIP-SPEAKER-GUARD", "EIP-SPEAKER-SPOOFED", "EIP-SPEAKER-MASQ"
"""Our chains: what goes to an EIP; what of it may pass; what comes from one; what IPVS sends on."""

_LOCKED = "holding the xtables lock"
"""What a program says that did not get the lock. Its exit code, 4, is iptables-nft's too where a kernel refuses a rule,
and of those who may not do what they are asked for."""
_REPLY = "-m conntrack --ctstate RELATED,ESTABLISHED --ctdir REPLY"


@dataclass(frozen=True, slots=True)
class Table:
    """A table: the kernel's chains that ours are entered from, which of ours from each, and the rules of ours."""

    name: str
    entered: Mapping[str, str]
    chains: Mapping[str, tuple[str, ...]]


def tables(plan: Plan, version: int) -> tuple[Table, Table]:
    """What should stand for the EIPs of one IP version."""
    eips = sorted(eip for eip in plan.eips if eip.version == version)
    keys = sorted((key for key in plan.virtual_servers if key[0].version == version), key=by_address)
    servers = [plan.virtual_servers[key] for key in keys]
    return (
        Table(
            "filter",
            {"INPUT": EIPS, "FORWARD": SPOOFED},
            {
                EIPS: (f"-j {SPOOFED}", *(f"-d {_host(eip)} -g {GUARD}" for eip in eips)),
                SPOOFED: tuple(f"-s {_host(eip)} ! -i lo -m conntrack --ctstate NEW -j DROP" for eip in eips),
                GUARD: _guard(servers, version),
            },
        ),
        Table(
            "nat",
            {"POSTROUTING": MASQUERADE},
            {MASQUERADE: tuple(rule for server in servers for rule in _masquerade(server))},
        ),
    )


def _guard(servers: Sequence[VirtualServer], version: int) -> tuple[str, ...]:
    """IPVS takes its packets in the INPUT hook after this (priority 99, net/netfilter/ipvs/ip_vs_core.c), so what
    returns is IPVS's; but ICMP, which the kernel answers, and replies to what this host itself sent from an EIP. Nobody
    else may send from one, lest what follows be taken for replies (SPOOFED), and no connection begins with one.

    Of an open port IPVS leaves to the host what comes from port 20 (ip_vs_schedule) and frames to more than our own
    MAC (ip_vs_in_hook): not even those may pass.
    """
    unreachable = f"REJECT --reject-with {'icmp' if version == 4 else 'icmp6'}-port-unreachable"
    return (
        f"-p {'icmp' if version == 4 else 'ipv6-icmp'} -j RETURN",
        f"! -p tcp {_REPLY} -j RETURN",
        f"-p tcp {_REPLY} -m tcp ! --tcp-flags SYN,ACK SYN -j RETURN",
        "-m pkttype ! --pkt-type unicast -j DROP",
        "-p tcp -m tcp --sport 20 -j REJECT --reject-with tcp-reset",
        f"-p udp -m udp --sport 20 -j {unreachable}",
        *(rule for server in servers for rule in _open(server)),
        "-m conntrack --ctstate INVALID -j DROP",  # a reset would let strangers end connections
        "-p tcp -j REJECT --reject-with tcp-reset",
        f"-j {unreachable}",
    )


def _open(server: VirtualServer) -> Iterator[str]:
    """Ranges of the other family let nobody in, and are no reason to let everybody in."""
    to_port = f"-d {_host(server.address)} {_port(server.protocol.lower(), server.port)}"
    for network in server.sources:
        if network.version == server.address.version:
            yield f"{_from(network)}{to_port} -j RETURN"
    yield f"{to_port} -j {'DROP' if server.sources else 'RETURN'}"


def _masquerade(server: VirtualServer) -> Iterator[str]:
    """Without it a reply from another host bypasses us. One on this host passes here anyway, and may see the client;
    but if the client is the real server itself, it would answer itself directly. And if it is a socket of this host, it
    has the EIP for its address. Ports are random, as ``nftables/skeletons.py`` has them."""
    protocol = server.protocol.lower()
    original = f"-m conntrack --ctorigdst {server.address} --ctorigdstport {server.port}"
    if any(real.local for real in server.real_servers):
        yield f"-s {_host(server.address)} -p {protocol} {original} -j MASQUERADE --random-fully"
    for real in server.real_servers:
        if real.local:
            to_real = f"-d {_host(real.address)} {_port(protocol, real.port)} {original}"
            yield f"-s {_host(real.address)} {to_real} -j MASQUERADE --random-fully"
            yield f"{to_real} -j RETURN"
    if server.masquerade:
        yield f"-p {protocol} {original} -j MASQUERADE --random-fully"


def _host(address: IPAddress) -> str:
    return f"{address}/{address.max_prefixlen}"


def _from(network: IPNetwork) -> str:
    return f"-s {network} " if network.prefixlen else ""


def _port(protocol: str, port: int) -> str:
    return f"-p {protocol} -m {protocol} --dport {port}"


# ── Scripts ───────────────────────────────────────────────────────────────────────────────────────────────────


def script(saved: str, plan: Plan, version: int) -> str:
    """What iptables-restore makes of ``saved`` (iptables-save's output) the tables of ``plan``; '' for nothing.

    Where the plan has no EIP of this version, our chains go.
    """
    wanted = any(eip.version == version for eip in plan.eips)
    change = build if wanted else remove
    return "".join(change(table, saved) for table in tables(plan, version))


def build(table: Table, saved: str) -> str:
    """Ours comes first: a rule before it that accepts would open a way around the guard."""
    have = _rules(saved, table.name)
    enter = [line for hook, chain in table.entered.items() for line in _enter(hook, chain, have)]
    rules = {chain: [f"-A {chain} {rule}" for rule in chain_rules] for chain, chain_rules in table.chains.items()}
    if not enter and all(wanted == _of(chain, have) for chain, wanted in rules.items()):
        return ""
    return _transaction(table, [*enter, *(rule for wanted in rules.values() for rule in wanted)])


def _enter(hook: str, chain: str, have: list[str]) -> list[str]:
    """Nothing where it is entered once and first."""
    jumps, jump = _of(hook, have), f"-A {hook} -j {chain}"
    if jumps[:1] == [jump] and jumps.count(jump) == 1:
        return []
    return [*(f"-D {hook} -j {chain}" for line in jumps if line == jump), f"-I {hook} -j {chain}"]


def _of(chain: str, lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith(f"-A {chain} ")]


def remove(table: Table, saved: str) -> str:
    have = _rules(saved, table.name)
    if not any(line.startswith(f":{chain} ") for line in have for chain in table.chains):
        return ""
    jumps = [f"{hook} -j {chain}" for hook, chain in table.entered.items()]
    leave = [f"-D {jump}" for jump in jumps for line in have if line == f"-A {jump}"]
    return _transaction(table, [*leave, *(f"-X {chain}" for chain in table.chains)])


def _transaction(table: Table, lines: list[str]) -> str:
    """A chain that is named is made, or flushed; with --noflush all others stay as they are."""
    chains = [f":{chain} - [0:0]" for chain in table.chains]
    return "\n".join([f"*{table.name}", *chains, *lines, "COMMIT", ""])


def _rules(saved: str, name: str) -> list[str]:
    """The lines of one table: ``:CHAIN POLICY [n:n]`` and ``-A CHAIN …``."""
    lines = iter(saved.splitlines())
    for line in lines:
        if line == f"*{name}":
            return [line for line in iter(lambda: next(lines), "COMMIT") if line[:1] in (":", "-")]
    return []


# ── The edge ──────────────────────────────────────────────────────────────────────────────────────────────────


class IptablesGuard:
    """Guard and masquerade of the network namespace this is called in. Methods raise EdgeError."""

    name = "iptables"

    def __init__(self, programs: Mapping[int, str]) -> None:
        self._programs = programs
        self._ours = frozenset(programs)
        """IP versions whose tables may hold chains of ours: at first nobody knows."""

    def concerned(self, changes: Iterable[Change]) -> bool:
        """Of real servers only those on this node have rules."""
        return any(map(_concerns, changes))

    async def apply(self, plan: Plan) -> bool:
        """Bring our chains to ``plan``, each table in one transaction; whether anything had to be changed."""
        wanted = frozenset(eip.version for eip in plan.eips)
        versions = sorted(self._ours | wanted)
        # In a thread: a thousand virtual servers are a hundred milliseconds' work.
        scripts = {version: await in_thread(script, await self._save(version), plan, version) for version in versions}
        self._ours |= wanted
        for version, text in scripts.items():
            if text:
                await run(f"{self._programs[version]}-restore", "--noflush", "--wait", "5", text=text)
        self._ours = wanted
        return any(scripts.values())

    async def cleanup(self) -> tuple[str, ...]:
        changed = await self.apply(Plan(frozenset(), {}))
        return (f"iptables chains {EIPS}, {GUARD}, {SPOOFED}, {MASQUERADE}",) if changed else ()

    async def _save(self, version: int) -> str:
        return await run(f"{self._programs[version]}-save")


def _concerns(change: Change) -> bool:
    match change:
        case AddRealServer(_, real) | RemoveRealServer(_, real):
            return real.local
        case ChangeRealServer(_, before, after):
            return before.local != after.local
    return True


async def open_iptables_guard() -> IptablesGuard:
    """Raises Unsupported where the programs or the kernel's part are missing."""
    return IptablesGuard(await programs("filter"))


async def programs(table: str) -> dict[int, str]:
    """By IP version, without ``-save`` and ``-restore``. Raises Unsupported where one or the ``table`` is missing."""
    found = {4: _program("iptables"), 6: _program("ip6tables")}
    try:
        await run(f"{found[4]}-save", "-t", table)
    except NotDone:
        raise
    except EdgeError as error:
        raise Unsupported(f"this kernel has no iptables: {error}") from error
    return found


def _program(name: str) -> str:
    """Debian's ``iptables`` speaks nft, which a kernel that needs this lacks; elsewhere the plain name may be all."""
    for candidate in (f"{name}-legacy", name):
        if shutil.which(f"{candidate}-restore"):
            return candidate
    raise Unsupported(f"the program {name} is not installed (package iptables)")


async def run(*command: str, text: str = "") -> str:
    """What the program says, given ``text``. Raises EdgeError with its complaint, NotDone where another one holds the
    lock."""
    status, output, complaint = await run_program(*command, text=text)
    if status != 0:
        raise (NotDone if _LOCKED in complaint else EdgeError)(f"{' '.join(command)}: {complaint}")
    return output.decode(errors="replace")
