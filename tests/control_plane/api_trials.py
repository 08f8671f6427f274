"""What happens to a control plane, and what fifty clients see of it: played by tests, and beside kube-vip by
``benchmarks/control_plane.py``.

A ``Contender`` is what holds the address. A trial breaks something at the node that holds it, waits until the address
answers again, mends it, and waits until all is as before.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from three_servers import LINKS, ControlPlaneNode, Site, requesting, until

from speaker.lab.switch import cut, mend

BROKEN = 8.0
"""Seconds for which something stays broken, at least: longer than kube-vip's lease."""
CALM = 2.0
"""Seconds without a failed request after which it is over."""
AGAIN = 0.9
"""Seconds after which Linux has not yet sent a SYN again, which it does after one."""


class Contender(Protocol):
    name: str

    def start(self, node: ControlPlaneNode, first: bool = False) -> None:
        """As the kubelet starts its static pod; ``first``: on the node of ``kubeadm init``."""

    def boot(self, node: ControlPlaneNode) -> None:
        """The same after a crash: its files are there."""

    def holder(self) -> ControlPlaneNode | None: ...

    def evacuate(self, node: ControlPlaneNode) -> None:
        """Before maintenance of ``node``, by the documentation."""

    def return_to(self, node: ControlPlaneNode) -> None: ...

    def upgrade(self, node: ControlPlaneNode) -> None:
        """Its pod is replaced by one of another image."""


class Kind(NamedTuple):
    """Requests of one kind. ``seconds``: for how long they were lost, which is that they failed or took until their SYN
    was sent again: from when one of them began to when the next good one did, all such times together."""

    asked: int
    failed: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Row:
    trial: str
    contender: str
    new: Kind
    held: Kind
    broken: int
    """Watches that ended."""
    silent: float
    """Seconds: the longest without an event for any watch."""
    words: Mapping[str, int]
    """What was wrong, and how often."""

    def __str__(self) -> str:
        new, held = (f"{kind.failed:5} of {kind.asked:5} {kind.seconds:6.2f} s" for kind in (self.new, self.held))
        return f"{self.trial:34} {self.contender:9} {new}   {held}   {self.broken:3} {self.silent:6.2f} s"


HEAD = f"{'':44} {'new connections':>24}   {'held connections':>24}   watches"


def row(trial: str, contender: str, seen: Sequence[Mapping[str, Any]], since: float) -> Row:
    late = [one for one in seen if one["over"] >= since]
    words: dict[str, int] = {}
    for one in late:
        if one["wrong"]:
            words[one["wrong"][:60]] = words.get(one["wrong"][:60], 0) + 1
    events = sorted(one["at"] for one in seen if one["kind"] == "event" and one["at"] >= since - 1)
    gaps = [later - earlier for earlier, later in pairwise(events)]
    broken = sum(one["kind"] == "watch" and bool(one["wrong"]) for one in late)
    return Row(trial, contender, of(late, "new"), of(late, "held"), broken, max(gaps, default=0.0), words)


def of(seen: Iterable[Mapping[str, Any]], kind: str) -> Kind:
    ours = sorted((one for one in seen if one["kind"] == kind), key=lambda one: one["at"])
    seconds, since = 0.0, None
    for one in ours:
        if one["wrong"] or one["over"] - one["at"] > AGAIN:
            since = one["at"] if since is None else since
        elif since is not None:
            seconds, since = seconds + one["at"] - since, None
    return Kind(len(ours), sum(bool(one["wrong"]) for one in ours), seconds)


@dataclass
class Ground:
    """Where trials are played, one after the other."""

    site: Site
    contender: Contender
    logs: Path

    def play(self, trial: "Trial") -> Row:
        self.settled()
        log = self.logs / f"{trial.__name__}.{self.contender.name}.log"
        with requesting(self.site, log) as seen:
            self.calm(seen)
            since = time.monotonic()
            trial(self)
            self.settled()
            self.calm(seen)
            return row(trial.__name__.replace("_", " "), self.contender.name, seen(), since)

    def settled(self) -> None:
        """Every API server is well, and one node holds the address."""
        until(lambda: all(node.well() for node in self.site.nodes), "all API servers well")
        until(self.contender.holder, "a holder")

    def calm(self, seen: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        begun = time.monotonic()

        def good() -> bool:
            now = time.monotonic()
            lately = [one for one in seen() if one["over"] > now - CALM]
            return now > begun + CALM and not any(one["wrong"] for one in lately)

        until(good, "requests without a failure")

    def held(self) -> ControlPlaneNode:
        found = until(self.contender.holder, "a holder")
        assert isinstance(found, ControlPlaneNode)
        return found

    def another(self, node: ControlPlaneNode) -> ControlPlaneNode:
        return next(each for each in self.site.nodes if each is not node)

    def answered(self, begun: float) -> None:
        """As long as it is broken at least, and until a client is answered."""
        until(lambda: time.monotonic() > begun + BROKEN, "time")
        until(lambda: self.another(self.site.nodes[0]).answers(place=self.site.client), "an answer at the address")

    def boot(self, *nodes: ControlPlaneNode) -> None:
        """As a kubelet finds the static pods: the address first, as it is done first."""
        for node in nodes:
            node.forget_the_running_kernel()
        for node in nodes:
            self.contender.boot(node)
        for node in nodes:
            node.start_etcd()
        for node in nodes:
            node.start_api()


Trial = Callable[[Ground], None]


# ── Planned ───────────────────────────────────────────────────────────────────────────────────────────────────


def upgrade_of_what_holds_the_address(ground: Ground) -> None:
    for node in ground.site.nodes:
        ground.contender.upgrade(node)
        ground.settled()


def maintenance_of_the_API_server(ground: Ground) -> None:  # noqa: N802
    node = ground.held()
    ground.contender.evacuate(node)
    node.stop_api()
    node.start_api()
    until(node.well, "the API server after its maintenance")
    ground.contender.return_to(node)


# ── Unplanned ─────────────────────────────────────────────────────────────────────────────────────────────────


def crash_of_the_holder(ground: Ground) -> None:
    crash(ground, ground.held())


def crash_of_another_node(ground: Ground) -> None:
    crash(ground, ground.another(ground.held()))


def crash(ground: Ground, node: ControlPlaneNode) -> None:
    begun = time.monotonic()
    node.crash()
    ground.answered(begun)
    ground.boot(node)


def cut_link_of_the_holder(ground: Ground) -> None:
    node, begun = ground.held(), time.monotonic()
    for link in LINKS:
        cut(ground.site.lan, node.name, link)
    ground.answered(begun)
    for link in LINKS:
        mend(ground.site.lan, node.name, link)


def kill_of_the_API_server(ground: Ground) -> None:  # noqa: N802
    node, begun = ground.held(), time.monotonic()
    node.end("kube-apiserver")
    ground.answered(begun)
    node.start_api()


def certificate_expired(ground: Ground) -> None:
    node, begun = ground.held(), time.monotonic()
    good = node.files
    node.files = ground.site.authority.certify(f"{node.name}-expired", node.address, days=-1)
    node.end("kube-apiserver")
    node.start_api()
    ground.answered(begun)
    node.files = good
    node.end("kube-apiserver")
    node.start_api()


def etcd_without_quorum(ground: Ground) -> None:
    holder, begun = ground.held(), time.monotonic()
    two = [node for node in ground.site.nodes if node is not holder]
    for node in two:
        node.end("etcd")
    until(lambda: time.monotonic() > begun + BROKEN, "time")
    for node in two:
        node.start_etcd()


def reboot_of_all_at_once(ground: Ground) -> None:
    for node in ground.site.nodes:
        node.crash()
    ground.boot(*ground.site.nodes)


PLANNED: tuple[Trial, ...] = (upgrade_of_what_holds_the_address, maintenance_of_the_API_server)
CRASHES: tuple[Trial, ...] = (crash_of_the_holder, cut_link_of_the_holder, crash_of_another_node)
FAULTS: tuple[Trial, ...] = (
    kill_of_the_API_server,
    certificate_expired,
    etcd_without_quorum,
    reboot_of_all_at_once,
)


# ── The speaker as a contender ────────────────────────────────────────────────────────────────────────────────


class Ours:
    name = "speaker"

    def __init__(self, site: Site) -> None:
        self._site = site

    def start(self, node: ControlPlaneNode, first: bool = False) -> None:
        self._site.start_ours(node, first)
        until(node.status, f"the speaker of {node.name}")

    def boot(self, node: ControlPlaneNode) -> None:
        node.start_speaker()

    def holder(self) -> ControlPlaneNode | None:
        return self._site.holder()

    def evacuate(self, node: ControlPlaneNode) -> None:
        node.run("drain", "--runtime-dir", node.runtime_dir)

    def return_to(self, node: ControlPlaneNode) -> None:
        node.run("undrain", "--runtime-dir", node.runtime_dir)

    def upgrade(self, node: ControlPlaneNode) -> None:
        node.end_gently("speaker")
        Path(node.runtime_dir, "status.json").unlink()
        node.start_speaker()
        until(node.status, f"the new speaker of {node.name}")
