"""The other speakers on one link, as heard since it was opened. Pure.

Times are seconds of whatever clock the caller reads.
"""

from collections.abc import Iterator
from typing import NamedTuple

from speaker.model import IPAddress, Mac, Speaker
from speaker.ownership.hello import Hello
from speaker.ownership.hellos.hellos import MAX_SENDERS
from speaker.ownership.inquirer import PAUSE

OVERDUE = 1.15
"""Of its interval after which a peer's next hello is missed at our next beat: the carrier may be gone. It is asked for
then, and not all the time, as long as hellos come by the link."""


class _Answered(NamedTuple):
    """An EIP, and who answered for it: a node, or a stranger (None)."""

    eip: IPAddress
    node: str | None
    probed: bool


class Speakers:
    """Who they are, and who of them is missed."""

    def __init__(self, now: float) -> None:
        self._known: dict[str, Speaker] = {}
        self._heard_at: dict[str, float] = {}
        """When the last hello came of each that is known."""
        self._due: dict[str, float] = {}
        """When the next hello of each is overdue."""
        self._informed: set[str] = set()
        self._headless: set[str] = set()
        self._answered: set[_Answered] = set()
        self._answered_since = now
        """Those answers count already that came since then: no longer than PAUSE ago."""
        self.filtered: dict[str, set[IPAddress]] = {}
        """Nodes none of whose hellos arrives → EIPs that they answer for, about to be reported."""

    # ── who ──

    def meet(self, hello: Hello, mac: Mac) -> Speaker | None:
        """A hello that counts says which MAC and which addresses are its sender's; None: no others than before."""
        known = self._known.get(hello.node)
        speaker = Speaker(mac, hello.addresses or (known.addresses if known is not None else ()))
        if known == speaker:
            return None
        if len(self._known) >= MAX_SENDERS:
            first = next(iter(self._known))
            del self._known[first]
            self._heard_at.pop(first, None)
        self._known[hello.node] = speaker
        return speaker

    def items(self) -> Iterator[tuple[str, Speaker]]:
        yield from self._known.items()

    def get(self, node: str) -> Speaker | None:
        return self._known.get(node)

    @property
    def macs(self) -> frozenset[Mac]:
        return frozenset(speaker.mac for speaker in self._known.values())

    def nodes(self, mac: Mac) -> Iterator[str]:
        """Those whose hellos come from this MAC."""
        return (node for node, speaker in self._known.items() if speaker.mac == mac)

    # ── what they know ──

    def inform(self, hello: Hello) -> bool:
        """Its sender claims something, and not by what the API said before its start, or does not. Whether that is
        news."""
        knows = hello.digest.count > 0 and not hello.recalled
        if knows is (hello.node in self._informed):
            return False
        (self._informed.add if knows else self._informed.discard)(hello.node)
        return True

    def is_informed(self, node: str) -> bool:
        return node in self._informed

    def is_headless(self, node: str) -> bool:
        """It has no main process that works, as it says; one of an earlier release does not say so."""
        return node in self._headless

    # ── whose hellos come ──

    def heard(self, hello: Hello, at: float, least: float) -> None:
        """When it arrived. ``least``: seconds until its sender's next one."""
        (self._headless.add if hello.headless else self._headless.discard)(hello.node)
        self._heard_at[hello.node] = at
        if hello.node in self._due or len(self._due) < MAX_SENDERS:
            self._due[hello.node] = at + OVERDUE * max(least, hello.interval / 1000)

    def is_unheard(self, node: str, now: float, seconds: float) -> bool:
        """No hello of it came for so long."""
        return now - self._heard_at.get(node, float("-inf")) >= seconds

    def miss(self, now: float) -> bool:
        """Whether some hello is overdue: its sender is not awaited any more until it is heard again."""
        late = [node for node, due in self._due.items() if due <= now]
        for node in late:
            del self._due[node]
        return bool(late)

    # ── who answers ──

    def answer(self, eip: IPAddress, node: str | None, now: float, *, probed: bool) -> bool:
        """Somebody answered for ``eip``. Whether that counts: of the same answer one does in a while."""
        if now - self._answered_since >= PAUSE:
            self._answered.clear()
            self._answered_since = now
        answered = _Answered(eip, node, probed)
        if answered in self._answered:
            return False
        self._answered.add(answered)
        return True
