"""``reach``: every EIP of the demo's manifests, asked on every port of its Services by a host on its segment."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import Any

from speaker.errors import EdgeError
from speaker.lab.backends import Expectation, ask, backends, read_expectations
from speaker.lab.capture import Capture, Reply, capturing
from speaker.lab.lan import Stage, neighbours
from speaker.lab.speakers import SpeakerProcess, started
from speaker.lab.timeline import Tone, bars, sentence
from speaker.model import Family, IPAddress, Mac, format_mac
from speaker.system.threads import in_thread


@dataclass(frozen=True, slots=True)
class PortResult:
    """``answers`` per backend; ``lost`` probes had none."""

    expected: Expectation
    answers: Mapping[str, int]
    lost: int = 0


@dataclass(frozen=True, slots=True)
class EipResult:
    """One EIP as one Service uses it, seen from the ``observer`` on the segment of ``link``.

    ``mac`` is what the observer's neighbour table says (None: no entry), ``claimed_by`` every MAC it ever heard say
    that it has the address, ``expected`` the MAC of the node's link.
    """

    address: IPAddress
    service: str
    link: str
    observer: str
    expected: Mac
    mac: Mac | None
    claimed_by: frozenset[Mac]
    ports: tuple[PortResult, ...]

    @property
    def answers(self) -> Mapping[str, int]:
        return sum((Counter(port.answers) for port in self.ports), Counter[str]())

    def problems(self) -> Iterator[str]:
        """Why this EIP is not reachable as it should be, in sentences; nothing when all is well."""
        who = f"{self.service} at {self.address}"
        if self.mac != self.expected:
            found = format_mac(self.mac) if self.mac else "no MAC"
            yield f"{who}: {self.observer}'s neighbour table has {found}, not {self.link}'s {format_mac(self.expected)}"
        for stranger in sorted(self.claimed_by - {self.expected}):
            yield f"{who}: {format_mac(stranger)} claimed the address too"
        if not self.ports:
            yield f"{who}: was asked on no port"
        for port in self.ports:
            if silent := sorted(port.expected.backends - port.answers.keys()):
                yield f"{who}, {port.expected.protocol} {port.expected.port}: no answer from {', '.join(silent)}"
            if strange := sorted(port.answers.keys() - port.expected.backends):
                yield f"{who}, {port.expected.protocol} {port.expected.port}: answered by {', '.join(strange)}"

    def as_json(self) -> dict[str, Any]:
        return {
            "address": str(self.address),
            "service": self.service,
            "link": self.link,
            "mac": format_mac(self.mac) if self.mac else None,
            "answers": dict(sorted(self.answers.items())),
            "ports": [
                {
                    "protocol": port.expected.protocol.value,
                    "port": port.expected.port,
                    "answers": dict(sorted(port.answers.items())),
                    "lost": port.lost,
                }
                for port in self.ports
            ],
        }


@dataclass(frozen=True, slots=True)
class Reached:
    """``elapsed``: seconds from the speaker's start until every EIP had answered."""

    eips: tuple[EipResult, ...]
    elapsed: float

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(problem for eip in self.eips for problem in eip.problems())

    @property
    def ok(self) -> bool:
        return bool(self.eips) and not self.problems

    def summary(self) -> str:
        """What was measured, when all is well."""
        addresses, services = {eip.address for eip in self.eips}, {eip.service for eip in self.eips}
        families = " and ".join(sorted({Family.of(address) for address in addresses}))
        ports = sum(len(eip.ports) for eip in self.eips)
        return (
            f"{len(addresses)} EIPs of {len(services)} Services reached over {families}, on each of {ports} ports an "
            f"answer from every backend, {self.elapsed:.1f} s after the speaker's start"
        )

    def as_json(self) -> dict[str, Any]:
        return {"ok": self.ok, "eips": [eip.as_json() for eip in self.eips], "problems": list(self.problems)}


#: Seconds until every EIP has to be claimed, generous because a demo also runs on a busy laptop.
CONVERGENCE = 30.0
#: Answers wanted from a port; more are asked for while a backend stays unseen, since a forwarder may choose at random.
ANSWERS = 12
#: Seconds a port gets to give them, and one probe to be answered.
PORT_SECONDS = 10.0
PROBE_SECONDS = 1.0
POLL = 0.02


@dataclass(frozen=True, slots=True)
class _Eip:
    """An EIP as the speaker's status file has it."""

    address: IPAddress
    services: frozenset[str]
    link: str


async def reach(stage: Stage, linger: Callable[[], Awaitable[None]]) -> Reached:
    """Play the scenario; ``linger`` is awaited at its end, while everything still runs.

    Raises EdgeError (in a group) when the speaker ends early or does not claim every EIP in time.
    """
    node = stage.lan.topology.nodes[0]
    expectations = read_expectations(stage.manifests, stage.lan.topology)
    async with backends(stage.lan, {listener for expected in expectations for listener in expected.listeners}):
        with _observers_listening(stage) as heard:
            async with started(node, stage.lan.namespace(node), stage.manifests, stage.directory) as speaker:
                begun = asyncio.get_running_loop().time()
                async with asyncio.TaskGroup() as tasks:
                    story = tasks.create_task(_narrate(stage, speaker), name="narrator")
                    eips = await _claimed_eips(speaker, expectations)
                    results = await _visit(stage, expectations, eips, heard)
                    reached = Reached(results, asyncio.get_running_loop().time() - begun)
                    _show(stage, reached)
                    await linger()
                    story.cancel()
    return reached


@contextmanager
def _observers_listening(stage: Stage) -> Iterator[Mapping[str, Capture]]:
    """What the observer of each link hears, by link."""
    told: set[tuple[str, IPAddress]] = set()

    def tell(observer: str, claim: Reply) -> None:
        if claim.unasked and (observer, claim.address) not in told:
            told.add((observer, claim.address))
            how = "gratuitous ARP" if claim.address.version == 4 else "unsolicited NA"
            stage.timeline.say(observer, f"hears {how}: {claim.address} is at {format_mac(claim.mac)}", Tone.DIM)

    with ExitStack() as stack:
        yield {
            link: stack.enter_context(capturing(stage.lan.namespace(observer), "eth0", partial(tell, observer)))
            for link, observer in stage.lan.topology.observers
        }


async def _narrate(stage: Stage, speaker: SpeakerProcess) -> None:
    """Tell what the speaker logs. It never stops by itself before we stop it: EdgeError with its last words."""
    async for event in speaker.events():
        if (said := sentence(event)) is not None:
            stage.timeline.say(speaker.node, *said)
    code = await speaker.process.wait()
    raise EdgeError("\n".join([f"the speaker in {speaker.node} ended with exit code {code}:", *speaker.last_lines]))


async def _claimed_eips(speaker: SpeakerProcess, expectations: tuple[Expectation, ...]) -> tuple[_Eip, ...]:
    """Wait until the speaker is healthy and says that it has claimed an EIP for every expectation."""
    missing: set[tuple[str, Family]] = set()
    status: Mapping[str, Any] = {}
    try:
        async with asyncio.timeout(CONVERGENCE):
            while True:
                status = speaker.status()
                eips = read_eips(status)
                missing = unserved(expectations, eips)
                if not missing and await speaker.healthy():
                    return eips
                await asyncio.sleep(POLL)
    except TimeoutError as late:
        waiting = ", ".join(f"{service} ({family})" for service, family in sorted(missing)) or "its /healthz"
        raise EdgeError(
            f"after {CONVERGENCE:.0f} s the speaker still owes an EIP to {waiting}; refused: {status.get('refused')}"
        ) from late


def read_eips(status: Mapping[str, Any]) -> tuple[_Eip, ...]:
    """The claimed EIPs of a ``status.json``."""
    return tuple(
        _Eip(ip_address(eip["address"]), frozenset(eip["services"]), eip["link"])
        for eip in status.get("eips", ())
        if eip["claimed"]
    )


def unserved(expectations: tuple[Expectation, ...], eips: tuple[_Eip, ...]) -> set[tuple[str, Family]]:
    """The Services, each with a family, that have no EIP among ``eips`` yet."""
    served = {(service, Family.of(eip.address)) for eip in eips for service in eip.services}
    return {(expected.service, expected.family) for expected in expectations} - served


async def _visit(
    stage: Stage,
    expectations: tuple[Expectation, ...],
    eips: tuple[_Eip, ...],
    heard: Mapping[str, Capture],
) -> tuple[EipResult, ...]:
    """Ask everywhere at once, then look at what the observers know by then."""
    async with asyncio.TaskGroup() as tasks:
        asking = {
            (eip, service): [
                tasks.create_task(
                    _ask_port(stage, eip, expected), name=f"{eip.address} {expected.protocol} {expected.port}"
                )
                for expected in expectations
                if expected.service == service and expected.family is Family.of(eip.address)
            ]
            for eip in eips
            for service in sorted(eip.services)
        }
    tables = {
        link: await in_thread(neighbours, stage.lan.namespace(_observer(stage, link)))
        for link in {eip.link for eip in eips}
    }
    node = stage.lan.topology.host(stage.lan.topology.nodes[0])
    return tuple(
        EipResult(
            address=eip.address,
            service=service,
            link=eip.link,
            observer=_observer(stage, eip.link),
            expected=node.mac(eip.link),
            mac=tables[eip.link].get(eip.address),
            claimed_by=frozenset(each.mac for each in heard[eip.link].replies() if each.address == eip.address),
            ports=tuple(task.result() for task in ports),
        )
        for (eip, service), ports in asking.items()
    )


def _observer(stage: Stage, link: str) -> str:
    observer = stage.lan.topology.observer(link)
    if observer is None:
        raise EdgeError(f"the speaker claimed an EIP on {link!r}, a link that leads to no client")
    return observer


async def _ask_port(stage: Stage, eip: _Eip, expected: Expectation) -> PortResult:
    """Ask until every backend has answered and there are ANSWERS of them, or the time is up."""
    observer = _observer(stage, eip.link)
    answers: Counter[str] = Counter()
    lost = 0
    end = asyncio.get_running_loop().time() + PORT_SECONDS
    while answers.total() < ANSWERS or not expected.backends <= answers.keys():
        if asyncio.get_running_loop().time() > end:
            break
        answer = await ask(stage.lan.namespace(observer), eip.address, expected.protocol, expected.port, PROBE_SECONDS)
        if answer is None:
            lost += 1
            await asyncio.sleep(POLL)  # a refusal comes at once: no reason to flood
            continue
        if not answers:
            where = f"{eip.address} {expected.protocol} {expected.port}"
            stage.timeline.say(
                observer, f"asks {where}: {answer.backend} answers, having seen {answer.seen_client}", Tone.GOOD
            )
        answers[answer.backend] += 1
    return PortResult(expected, answers, lost)


def _show(stage: Stage, reached: Reached) -> None:
    """The table at the end, and what is wrong, if anything is."""
    names = stage.lan.topology.backends
    rows = [
        (
            eip.service,
            str(eip.address),
            f"{port.expected.protocol} {port.expected.port}",
            eip.link,
            bars(port.answers, [name for name in names if name in port.expected.backends]),
        )
        for eip in reached.eips
        for port in eip.ports
    ]
    stage.timeline.table([("SERVICE", "EIP", "PORT", "LINK", "ANSWERS"), *rows])
    stage.timeline.verdict(reached.problems, reached.summary() if reached.ok else "")
