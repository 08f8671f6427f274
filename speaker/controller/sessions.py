"""What Leases tell a leader, by when each version was seen: which agents forward, which are gone, which are dead. Pure.

``now`` is seconds of one clock that never goes back; times in the Leases come from other clocks.

Agents know within half a second that a node is dead, but any of them may be deaf, or lie. So three conditions must be
met: most agents miss the node, its kubelet does not renew its Lease either, and it is not one of many, because a
partition is more likely than the death of many nodes at once.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

DEAD = 60.0
"""Seconds after which a Lease that was not renewed means nothing: it is valid for 40 and renewed every 15."""
LOOK_COUNTS = 40.0
"""Seconds for which a look counts. After a longer gap counting starts again: if the API did not answer us, it may not
have let agents renew either."""


class _Seen(NamedTuple):
    version: str | None
    """A Lease's version. '': the Lease no longer exists; None: it never did, which means nothing."""
    since: float


def _seen(before: Mapping[str, _Seen], versions: Mapping[str, str | None], now: float) -> dict[str, _Seen]:
    """Each version, and since when the Lease has it."""
    found = {name: before.get(name) for name in versions}
    return {
        name: known if known is not None and known.version == versions[name] else _Seen(versions[name], now)
        for name, known in found.items()
    }


class Forwarders:
    """Whether all agents forward. An agent without a forwarder needs kube-proxy's rules, and one with a forwarder works
    beside them. So kube-proxy leaves the EIPs alone once no agent is left that does not forward, and carries them again
    as soon as there is one."""

    def __init__(self) -> None:
        self._seen: Mapping[str, _Seen] = {}
        self._begun: float | None = None
        self.all_forward: bool | None = None
        """None: not known yet."""

    def heard(self, without: Mapping[str, str], now: float) -> None:
        """``without``: the version of each Lease whose agent says that it does not forward. A Lease that is renewed or
        created while we look is alive; one that was there at first may be of an agent long gone."""
        self._begun = begun = now if self._begun is None else self._begun
        self._seen = _seen(self._seen, without, now)
        recent = [each.since for each in self._seen.values() if now < each.since + DEAD]
        if any(since > begun for since in recent):
            self.all_forward = False
        elif not recent:
            self.all_forward = True


class Lives:
    """Which holders are gone. A record names its holder until another node takes the EIP; forever, if no node may."""

    def __init__(self) -> None:
        self._seen: Mapping[str, _Seen] = {}
        self._heard_at = float("-inf")

    def heard(self, versions: Mapping[str, str], holders: Collection[str], now: float) -> None:
        """``versions``: of all Leases, by node, as requested at ``now``. ``holders``: the nodes that records name."""
        before = self._seen if now - self._heard_at <= LOOK_COUNTS else {}
        absent = {node: "" for node, seen in before.items() if seen.version is not None}
        self._seen = _seen(before, {node: versions.get(node, absent.get(node)) for node in holders}, now)
        self._heard_at = now

    def gone(self, now: float) -> dict[str, str] | None:
        """For each holder whose Lease was not renewed for long, the Lease's last version; None: unknown."""
        if now - self._heard_at > LOOK_COUNTS:
            return None
        return {
            node: version
            for node, (version, since) in self._seen.items()
            if version is not None and self._heard_at - since >= DEAD
        }


# ── Dead nodes ──────────────────────────────────────────────────────────────────────────────────────────────

WORD = 20.0
"""Seconds for which an agent's word counts: it renews its Lease every 15."""
STALE = 15.0
"""Seconds after which a kubelet that does not renew its Lease is silent. It renews every 10 to 10.4, so one renewal has
failed for more than 4 s, during which a kubelet tries several times."""
GAP = 5.0
"""The longest time between two looks at a Lease, in seconds: if the API did not answer us, it may not have let kubelets
renew."""
VOICES = 2
"""The fewest agents: the word of a single one is not enough, whatever the cluster's size."""
LIMIT = 3
"""If more than one node in so many is missed or not Ready, no node is taken for dead."""


class Word(NamedTuple):
    """What an agent's session Lease says."""

    misses: frozenset[str]
    heard: float
    """When we last heard it."""
    at: float
    """When it was last seen to be written; -inf if it was there before we began to look, as that is nobody's word."""


class Silence(NamedTuple):
    """Silence of a kubelet's Lease: since when no other version was seen, and when it was last requested."""

    since: float
    at: float


class Facts(NamedTuple):
    """All by node. ``nodes``: whether each is Ready. ``agents``: nodes with a session Lease, even if long dead."""

    nodes: Mapping[str, bool]
    agents: frozenset[str]
    words: Mapping[str, Word]
    kubelets: Mapping[str, Silence] = {}


def suspected(facts: Facts, now: float) -> dict[str, tuple[str, ...]]:
    """The nodes whose kubelets should be looked at: agents miss them, or did before we began."""
    return _missed(facts, {agent: word.misses for agent, word in facts.words.items() if now - word.heard <= WORD})


def _missed(facts: Facts, words: Mapping[str, frozenset[str]]) -> dict[str, tuple[str, ...]]:
    """The nodes that more than half of the other agents miss, and which agents miss them. Agents long dead count among
    the others, which makes it harder. Empty if there are too many such nodes."""
    agents = facts.agents & facts.nodes.keys()
    fresh = {agent: misses for agent, misses in words.items() if agent in agents}
    found = {}
    for node in facts.nodes:
        voices = tuple(sorted(agent for agent, misses in fresh.items() if node in misses and agent != node))
        if len(voices) >= VOICES and 2 * len(voices) > len(agents - {node}):
            found[node] = voices
    away = found.keys() | {node for node, ready in facts.nodes.items() if not ready}
    return found if LIMIT * len(away) <= len(facts.nodes) else {}


def dead(facts: Facts, now: float) -> dict[str, tuple[str, ...]]:
    """The nodes to be marked, and who misses each. ``now``: seconds of the clock of all ``facts``."""
    fresh = {agent: word.misses for agent, word in facts.words.items() if now - word.at <= WORD}
    doubtful = suspected(facts, now)
    return {
        node: voices
        for node, voices in _missed(facts, fresh).items()
        if node in doubtful
        and (silence := facts.kubelets.get(node)) is not None
        and silence.at - silence.since >= STALE
        and now - silence.at <= GAP
    }


class Words:
    """``now`` is seconds of one clock that never goes back: times in the Leases are of another clock."""

    def __init__(self) -> None:
        self.now: dict[str, Word] = {}
        self._lists = 0

    def any_heard(self, now: float) -> bool:
        """Whether any agent was heard recently."""
        return any(now - word.heard <= WORD for word in self.now.values())

    def heard(self, changes: Mapping[str, frozenset[str] | None], lists: int, now: float) -> None:
        """``changes``: what written Leases say, None for one that no longer misses anybody. ``lists``: how often all
        were listed. What a list brings may be old, so it counts only once it is written again."""
        if lists != self._lists:
            self.now = {agent: word._replace(at=float("-inf")) for agent, word in self.now.items()}
        at = now if lists == self._lists else float("-inf")
        self._lists = lists
        for agent, misses in changes.items():
            if misses is None:
                self.now.pop(agent, None)
            else:
                self.now[agent] = Word(misses, now, at)


class Kubelets:
    """What is seen of the kubelets' Leases."""

    def __init__(self) -> None:
        self._versions: dict[str, str] = {}
        self.silent: dict[str, Silence] = {}

    def looked(self, node: str, version: str, begun: float, ended: float) -> None:
        """``version``: of its Lease, as requested at ``begun`` and answered at ``ended``; '': it has none, or that is
        unknown."""
        before = self.silent.pop(node, None)
        if not version:
            return
        if before is None or self._versions[node] != version or begun - before.at > GAP:
            self._versions[node], self.silent[node] = version, Silence(ended, begun)
        else:
            self.silent[node] = Silence(before.since, begun)

    def only(self, nodes: Collection[str]) -> None:
        """Forgets all others."""
        self.silent = {node: silence for node, silence in self.silent.items() if node in nodes}
        self._versions = {node: self._versions[node] for node in self.silent}
