"""The story of a failover scenario: who did what when, in one order, and a table of what it cost.

It is told when it is over. What the lab did, what the speakers logged, what was heard on the LAN and what the clients
measured is known at different times, and would come out of order.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from speaker.lab.scenarios.failover_result import FailedOver, View, settle_ms
from speaker.lab.scenarios.narrator import sentence
from speaker.lab.scenarios.scene import Played, Scene
from speaker.lab.timeline import Timeline, Tone
from speaker.lab.watching.capture import Reply, moves
from speaker.lab.watching.outage import Outage
from speaker.model import IPAddress

#: What of the nodes' logs is part of the story.
TOLD = frozenset(
    {"started", "claimed", "withdrawn", "peer heard", "peer silent", "handing over", "frozen", "link lost"}
)


class Event(NamedTuple):
    at: float
    who: str
    what: str
    tone: Tone


def tell_holders(timeline: Timeline, holders: Mapping[IPAddress, str]) -> None:
    """Who holds what, a line for each node."""
    by_node: dict[str, list[str]] = defaultdict(list)
    for eip, node in holders.items():
        by_node[node].append(str(eip))
    for node, eips in sorted(by_node.items(), key=lambda one: (len(one[0]), one[0])):
        timeline.say(node, f"holds {', '.join(eips)}", Tone.EIP)


def show(scene: Scene, played: Played, result: FailedOver) -> None:
    """The story, the table, and what is wrong, if anything is."""
    tell(scene.stage.timeline, _lines(scene, played, result))
    scene.stage.timeline.table([_HEADING, *map(_row, result.views)])
    scene.stage.timeline.verdict(result.problems, summary(result) if result.ok else "")


def tell(timeline: Timeline, events: Iterable[Event]) -> None:
    """What happened, in order."""
    for event in sorted(events, key=lambda event: event.at):
        timeline.say(event.who, event.what, event.tone, event.at)


def happened(scene: Scene) -> Iterator[Event]:
    """What the lab did, and what the speakers said from then on."""
    for deed in scene.deeds:
        yield Event(deed.at, "lab", deed.what, Tone.BOLD)
    for told in scene.speakers.told:
        since = told.at >= scene.deeds[0].at
        if since and told.event.get("event") in TOLD and (said := sentence(told.event)) is not None:
            yield Event(told.at, told.node, *said)


def _lines(scene: Scene, played: Played, result: FailedOver) -> Iterator[Event]:
    begun = scene.deeds[0].at
    yield from happened(scene)
    for watch in played.watches:
        known = [Reply(begun, address, mac, unasked=True) for address, mac in watch.before.items()]
        announced = [reply for reply in watch.capture.replies() if reply.unasked and reply.at > begun]
        for move in moves([*known, *announced]):
            how = "gratuitous ARP" if move.address.version == 4 else "unsolicited NA"
            who = scene.names.get(move.mac, "a stranger")
            yield Event(move.at, watch.client, f"hears {how}: {move.address} is at {who}", Tone.DIM)
    for view in result.views:
        if view.outage.began is not None and view.outage.over:
            served = view.outage.began + (view.outage.ms + view.outage.unsure_ms) / 1000
            yield Event(
                served, view.neighbour, f"is answered by {view.address} again, after {_ms(view.outage)}", Tone.GOOD
            )


_HEADING = ("EIP", "SEEN BY", "BEFORE", "AFTER", "OUT FOR", "LOST", "NO ARP FOR", "TWICE ANSWERED")


def _row(view: View) -> tuple[str, ...]:
    return (
        str(view.address),
        view.neighbour,
        view.before,
        view.after,
        _ms(view.outage),
        f"{view.outage.lost} of {view.outage.sent}",
        "-" if view.silence is None else _ms(view.silence),
        str(view.duplicates),
    )


def _ms(outage: Outage) -> str:
    return f"{outage.ms:.0f} ms" if outage.over else "ever since"


def summary(result: FailedOver) -> str:
    """What was measured, when that is what was promised."""
    probes, requests = result.probes, result.requests
    lost = sum(view.outage.lost for view in result.views)
    told = [f"{max(result.outage_ms.values()):.0f} ms out at worst" if lost else f"none of {probes} probes lost"]
    if result.moved and not result.promise.lossless:
        told.append(f"never longer without any answer than {result.longest_ms:.0f} ms")
        told[-1] += f" (promised: {result.promise.outage_ms:.0f})"
    told.append(f"{len(result.moved)} of {len(result.outage_ms)} EIPs moved")
    if result.superseded:
        told.append(f"answers of a node after its successor's: {result.superseded}")
    elif requests:
        but = f", but within {settle_ms(result.hello_ms):.0f} ms of the healing" if result.victim is None else ""
        told.append(f"to {requests} ARP requests no node answered after its successor{but}")
    return f"{result.scenario}: {'; '.join(told)}"
