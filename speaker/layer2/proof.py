"""Whether a link's requests are answered: one of our own making goes the way of all others (ownership rule 35). Pure.

It has no socket, so it ends where a reply would be sent. All before that is what answers clients: the same
``Responder``, the same decision, the same claims.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from typing import Protocol as Interface

from speaker.layer2.answer import Ignored, Rival
from speaker.layer2.claims import Claims
from speaker.layer2.responder import AnswerPolicy, Protocol, Responder
from speaker.layer2.sockets.packet_socket import Received
from speaker.model import Family, Mac
from speaker.model.events import Event, Ignorings
from speaker.packets import arp, ndp
from speaker.packets.ethernet import PACKET_BROADCAST

_STAND_IN = {Family.IPV4: IPv4Address("192.0.2.1").packed, Family.IPV6: IPv6Address("2001:db8::1").packed}
"""Asked for where a link holds nothing, of claims that nobody else sees (RFC 5737, RFC 3849)."""
IDLE = 10
"""Proofs, of which one is given, of a family of which nothing is held."""
_ASKER_4, _ASKER_6 = IPv4Address(0), IPv6Address("fe80::2")


class Unproven(Exception):
    """Raised when a request of our own gets no answer, or a wrong one."""


class Filter(Interface):
    """What the kernel lets through to whoever answers."""

    def lets_through(self, address: bytes) -> bool: ...


class Proof:
    """Of the answering of one family on one link. ``clock`` gives seconds."""

    def __init__(self, protocol: Protocol, claims: Claims, clock: Callable[[], float]) -> None:
        self._protocol, self._claims, self._clock = protocol, claims, clock
        stand_in = Claims(claims.mac)
        stand_in.deadline = float("inf")
        stand_in.add(_STAND_IN[protocol.family])
        self._request = _Request()
        self._responder, self._stand_in = self._answering(claims), self._answering(stand_in)
        self._turn: Iterator[bytes] = iter(())
        self._asked: bytes | None = None
        """What got no answer, and is asked for again."""
        self._idle = 0
        """Proofs since it held anything."""

    def _answering(self, claims: Claims) -> Responder:
        asked = self._request
        return Responder(self._protocol, asked, claims, AnswerPolicy(), _nobody, _nobody, self._clock, asked)

    def give(self, passes: Filter) -> None:
        """Raises what keeps requests from being answered: a bug of ours, or ``Unproven``. Each EIP has its turn. Where
        there is none, one time in IDLE suffices."""
        self._asked = address = self._next()
        if address is None and self._idle % IDLE:
            self._idle += 1
            return
        if address is None or not self._is_answered(address, passes):
            self._stands_in()
        self._asked = None
        self._idle = self._idle + 1 if address is None else 0

    def blamed(self, passes: Filter) -> bytes | None:
        """The EIP that got no answer where another gets one; None: none. Raises as ``give`` where nothing gets one."""
        if (address := self._asked) is not None:
            others = (other for other in (self._another(), self._another()) if other not in (None, address))
            if (other := next(others, None)) is not None and self._is_answered(other, passes):
                return address
        self._stands_in()
        return address

    def _is_answered(self, address: bytes, passes: Filter) -> bool:
        """False where the deadline passed."""
        if not passes.lets_through(address):
            raise Unproven("the kernel's filter keeps requests out")
        return self._answers(self._responder, address)

    def _stands_in(self) -> None:
        if not self._answers(self._stand_in, _STAND_IN[self._protocol.family]):
            raise Unproven("answers end before they begin")

    @property
    def _held(self) -> Mapping[bytes, object]:
        return self._claims.arp if self._protocol.family is Family.IPV4 else self._claims.ndp

    def _next(self) -> bytes | None:
        """An EIP that is answered for; None where there is none."""
        if self._asked is not None and self._held.get(self._asked) is not None:
            return self._asked
        return self._another()

    def _another(self) -> bytes | None:
        held = self._held
        for _ in range(2):
            for address in self._turn:
                if held.get(address) is not None:
                    return address
            self._turn = iter(list(held))
        return None

    def _answers(self, responder: Responder, address: bytes) -> bool:
        """False where the deadline passed. Raises as ``give``."""
        asked, mac = self._request, self._claims.mac
        asked.ask(_request(self._protocol.family, _asker(mac), address))
        responder.answer_turn()
        error, asked.error = asked.error, None  # its traceback holds what is asked
        if error is not None:
            raise error
        if asked.ignored_as is Ignored.CLAIM_EXPIRED:
            return False
        if not asked.is_answered(_asker(mac) + mac, address):
            raise Unproven(f"a request of our own got {asked.ignored_as.value if asked.ignored_as else 'no answer'}")
        return True


def _asker(mac: Mac) -> Mac:
    """Anybody's but ours."""
    return Mac(mac[:5] + bytes((mac[5] ^ 1,)))


def _request(family: Family, asker: Mac, address: bytes) -> bytes:
    if family is Family.IPV4:
        return arp.request(asker, _ASKER_4, IPv4Address(address)).pack()
    return ndp.solicitation(asker, _ASKER_6, IPv6Address(address)).pack()


class _Request:
    """One request of our own. Stands in for the socket that it comes from and its reply goes to, and for the observer:
    it is counted nowhere."""

    def __init__(self) -> None:
        self._frames, self._replies = list[bytes](), list[bytes]()
        self.ignored_as: Enum | None = None
        self.error: BaseException | None = None

    def ask(self, frame: bytes) -> None:
        self._frames, self._replies = [frame], []
        self.ignored_as = self.error = None

    def is_answered(self, head: bytes, address: bytes) -> bool:
        """Once, to the asker and from us, about this EIP."""
        return len(self._replies) == 1 and self._replies[0].startswith(head) and address in self._replies[0]

    def fileno(self) -> int:
        return -1

    def discard(self) -> None:
        self._frames = []

    def receive(self) -> Received:
        frames, self._frames = self._frames, []
        return Received(frames, bytearray([PACKET_BROADCAST] * len(frames)), [0] * len(frames), [0] * len(frames))

    def send(self, frames: Sequence[bytes]) -> int:
        self._replies += frames
        return len(frames)

    def internal_error(self, task: str, error: BaseException) -> None:
        self.error = error

    def count(self, what: Event, number: int) -> None:
        if isinstance(what, Ignorings):
            self.ignored_as = what.reason

    def tell(self, event: Event) -> None: ...


def _nobody(rival: Rival) -> None:
    """Hears nothing."""
