"""What happens in the wire process, as it comes to the main process: the other end of ``EventSender``."""

from typing import Protocol, assert_never

from speaker.errors import EdgeError
from speaker.model import IPAddress, Placement
from speaker.ownership.events import NameFree, PeersAddress, WriteRecord
from speaker.wire.events import Acquaintances, RecordSink, Resumed, WireEvents
from speaker.wire.messages import (
    Announcements,
    Answers,
    Before,
    BugMet,
    BugsMetAgain,
    Conflict,
    Countable,
    Counts,
    EdgeFailed,
    EdgeRecovered,
    EipClaimed,
    EipYielded,
    HellosFiltered,
    HellosReceived,
    HellosSent,
    Ignorings,
    JoinFailed,
    LifeBegan,
    LinkLost,
    Namesake,
    PeerChanged,
    PeersClaims,
    PeersCounted,
    SendFailures,
    Silenced,
    SpeakerSeen,
    WasFrozen,
    WireEvent,
)


class Listener(WireEvents, Protocol):
    """Who hears what happens in the wire process, and with it."""

    def failed(self, edge: str, error: BaseException) -> None: ...

    def recovered(self, edge: str) -> None: ...

    def taken_over(self, end: str, away: float, held: int) -> None:
        """Another main process was here before: how it ended, how long ago in seconds, and so many EIPs are held."""

    def wire_error(self, task: str, words: str, place: str, trace: str) -> None:
        """What nobody foresaw, met by the wire process."""

    def wire_error_again(self, task: str, count: int) -> None:
        """From lines of code that it was told of before."""


class Moves(Acquaintances, Protocol):
    """Who follows what moves here, from whom, and what moves away."""

    def claimed(self, address: IPAddress, placement: Placement, before: str | None) -> None: ...

    def yielded(self, address: IPAddress) -> None: ...


class EventReceiver:
    """Hands each event to those whom it concerns."""

    def __init__(self, listener: Listener, sink: RecordSink | None, moves: Moves | None) -> None:
        self._listener, self._sink, self._moves = listener, sink, moves

    def resume(self, before: Before, found: Resumed) -> None:
        """The wire process may be at work already, by what another main process said."""
        if self._moves is not None:
            for link, node, speaker in found.speakers:
                self._moves.speaker(link, node, speaker)
            for address, taken in found.held.items():
                self._moves.claimed(address, taken.placement, taken.before)
        if self._sink is not None and found.incarnation is not None:
            self._sink.incarnation(found.incarnation)
        if before.end:
            self._listener.taken_over(before.end, before.away, len(found.held))

    def hear(self, event: WireEvent) -> None:
        match event:
            case EipClaimed():
                if self._moves is not None:
                    self._moves.claimed(event.eip, event.placement, event.before)
                self._listener.claimed(event.eip, event.placement, event.term, event.before, event.unanswered)
            case EipYielded():
                if self._moves is not None:
                    self._moves.yielded(event.eip)
                self._listener.yielded(event.eip, event.reason, event.holder)
            case SpeakerSeen():
                if self._moves is not None:
                    self._moves.speaker(event.link, event.node, event.speaker)
            case LifeBegan() | Silenced() | WriteRecord():
                if self._sink is not None:
                    _record(self._sink, event)
            case Counts():
                for what, count in event.counts.items():
                    self._count(what, count)
                for late, busy in event.delays:
                    self._listener.loop_delay(late, busy)
            case BugMet():
                self._listener.wire_error(event.task, event.words, event.place, event.trace)
            case EdgeFailed():
                self._listener.failed(event.edge, EdgeError(event.error))
            case EdgeRecovered():
                self._listener.recovered(event.edge)
            case _:
                self._tell(event)

    def _tell(
        self,
        event: WasFrozen
        | PeerChanged
        | PeersCounted
        | LinkLost
        | JoinFailed
        | Conflict
        | PeersAddress
        | Namesake
        | NameFree
        | HellosFiltered,
    ) -> None:
        listener = self._listener
        match event:
            case WasFrozen():
                listener.frozen()
            case PeerChanged():
                listener.peer(event.node, event.link, event.alive)
            case PeersCounted():
                listener.peers(event.link, event.number, event.silent)
            case LinkLost():
                listener.lost_link(event.link, event.error)
            case JoinFailed():
                listener.join_failed(EdgeError(event.error))
            case Conflict():
                listener.conflict(event.link, event.eip, event.mac, event.held)
            case PeersAddress():
                listener.peers_address(event.eip, event.node)
            case Namesake():
                listener.name_clash(event.link, event.mac, event.silent)
            case NameFree():
                listener.name_free()
            case HellosFiltered():
                listener.hellos_filtered(event.link, event.node, event.mac, event.eips)
            case _:
                assert_never(event)

    def _count(self, what: Countable, count: int) -> None:
        listener = self._listener
        match what:
            case Answers():
                listener.answered(what.family, count)
            case Ignorings():
                listener.ignored(what.family, what.reason, count)
            case Announcements():
                listener.announced(what.family, count)
            case SendFailures():
                listener.send_failed(what.family, count)
            case HellosSent():
                listener.hellos_sent(what.link, what.left, count)
            case HellosReceived():
                listener.hellos_received(what.link, what.rejected, count)
            case BugsMetAgain():
                listener.wire_error_again(what.task, count)
            case PeersClaims():
                listener.peers_claims()
            case _:
                assert_never(what)


def _record(sink: RecordSink, event: LifeBegan | Silenced | WriteRecord) -> None:
    match event:
        case LifeBegan():
            sink.incarnation(event.incarnation)
        case Silenced():
            sink.silence()
        case WriteRecord():
            sink.write_record(event)
        case _:
            assert_never(event)
