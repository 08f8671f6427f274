"""Where a speaker can go wrong, and what of it neighbours may notice: every task, edge, decision, plan, report, message
of the wire process, hello and record-keeper of ``speaker run --with-peers``."""

from enum import Enum
from typing import NamedTuple


class Notice(Enum):
    """What the LAN may see of an exception there, raised once and then for half a second on end."""

    NOTHING = "not one answer is lost, and nothing moves"
    ONE = "the EIP that it is about moves, and no other"
    FAILOVER = "what the node held moves, in the time of a failover; nobody else's does"


class Place(NamedTuple):
    """``at``: ``module:function``, perhaps ``@`` and the EIP or Service that the fault is about."""

    at: str
    notice: Notice


EIP, IPV6_EIP, SERVICE = "192.0.2.200", "2001:db8:0:1::200", "lab/echo-192-0-2-200"

MAIN = (
    # what is asked: files
    "speaker.standalone.watch:changes",
    "speaker.standalone.manifests:load",
    "speaker.run:Manifests.view",
    "speaker.allocator.settle:settle",
    "speaker.run:Manifests._put",
    # what the links look like
    "speaker.interfaces.netlink:Watcher._list_small_parts",
    "speaker.interfaces.gateway:_Watch.ask",
    # decisions and plans
    "speaker.node:Host._bring_to",
    "speaker.decide:Decider.decide",
    "speaker.interfaces.resolve:resolve",
    "speaker.forwarding.plan:Planner.plan",
    # effects
    "speaker.forwarding.nftables:NftablesForwarder.apply",
    "speaker.forwarding.nftables:NftablesForwarder.tend",
    "speaker.forwarding.nftables:NftablesForwarder.problems",
    "speaker.forwarding.nft:_nft",
    "speaker.forwarding.conntrack:forget",
    # what the wire process is told, and tells
    "speaker.wire.remote:Wire.offer",
    "speaker.wire.remote:Wire.withdraw_except",
    "speaker.wire.remote:Wire.standings",
    "speaker.wire.receiver:EventReceiver.hear",
    "speaker.wire.receiver:EventReceiver._count",
    "speaker.report:Report.claimed",
    # what people are told
    "speaker.report:Report.settled",
    "speaker.report:Report.decided",
    "speaker.report:Report.brought_about",
    "speaker.report:Report.publish",
    "speaker.report:Report.status",
    "speaker.report:Report.own_loop_delay",
    "speaker.telemetry.traffic:exposition",
    # looking around
    "speaker.interfaces.martians:martian_sources",
    "speaker.forwarding.limits:look",
    "speaker.beside.watch:Neighbour._look",
    "speaker.node:KeyFile._stamp",
)
MORE_MAIN = (
    "speaker.standalone.watch:_look",
    "speaker.standalone.document:parse",
    "speaker.api.world:read_world",
    "speaker.run:Manifests._read",
    "speaker.allocator.assign:Allocator.usage",
    "speaker.interfaces.netlink:Watcher._drain",
    "speaker.interfaces.rtnetlink:read_address",
    "speaker.interfaces.addresses:own_addresses",
    "speaker.node:Host._decide",
    "speaker.decide:_LinkChoice.choose",
    "speaker.ownership.eligibility:veto",
    "speaker.forwarding.plan:diff",
    "speaker.forwarding.nftables:NftablesForwarder.approximations",
    "speaker.forwarding.nft:run",
    "speaker.wire.remote:Wire.addresses",
    "speaker.wire.remote:Wire.ready",
    "speaker.report:Report.yielded",
    "speaker.report:Report.loop_delay",
    "speaker.report:Report.hellos_sent",
    "speaker.report:Report.forwarding",
    "speaker.report:Report.problems",
    "speaker.report:Report.health",
    "speaker.report:Report.martians",
    "speaker.report:Report.limits",
    "speaker.report:Report.beside",
    "speaker.files:write_atomically",
    "speaker.beside.watch:Neighbour.follow",
    "speaker.ownership.keyfile:read_keys",
)

WIRE = (
    "speaker.wire.shared:SharedOwner._tell",
    "speaker.wire.sharing.ports:Ports._hear",
    "speaker.wire.shared:SharedOwner._take",
    "speaker.wire.shared:SharedOwner._let_go",
    "speaker.wire.shared:SharedOwner.offer",
    "speaker.ownership.machine:Ownership.step",
    "speaker.ownership.machine:Ownership._judge",
    "speaker.ownership.hearing:Hearing._hear",
    "speaker.ownership.frames:encode",
    "speaker.ownership.frames:decode",
    "speaker.ownership.hellos:Hellos.send",
    "speaker.ownership.hellos:Hellos.receive",
    "speaker.layer2.answer:answer_arp",
    "speaker.layer2.answer:answer_ndp",
    "speaker.layer2.wire:PacketSocket.receive",
    "speaker.layer2.fleet:Fleet.take",
    "speaker.layer2.announcer:Announcer._announce_slice",
    "speaker.interfaces.carrier:_Probe.has_carrier",
    "speaker.wire.sender:EventSender.flush",
)
MORE_WIRE = (
    "speaker.wire.shared:SharedOwner._carry_out",
    "speaker.wire.shared:SharedOwner._meet",
    "speaker.wire.sharing.ports:Ports.send",
    "speaker.wire.shared:SharedOwner.withdraw",
    "speaker.wire.shared:SharedOwner.links",
    "speaker.wire.shared:SharedOwner.standing",
    "speaker.wire.shared:SharedOwner.peers",
    "speaker.ownership.machine:Ownership.next_wake",
    "speaker.ownership.machine:Ownership._speak",
    "speaker.ownership.peers:Peers.hear",
    "speaker.ownership.peers:Peer.learn",
    "speaker.ownership.frames:peek",
    "speaker.layer2.responder:Responder._answer_turn",
    "speaker.layer2.wire:PacketSocket.send",
    "speaker.layer2.fleet:Fleet.drop",
    "speaker.layer2.fleet:Fleet.extend",
    "speaker.layer2.link:LinkSpeaker._settle_slice",
    "speaker.wire.sender:EventSender.loop_delay",
)

ONE = (
    f"speaker.decide:_one@{EIP}",
    f"speaker.ownership.eligibility:veto@{IPV6_EIP}",
    f"speaker.forwarding.plan:_served_here@{SERVICE}",
)

PLACES = (
    *(Place(at, Notice.NOTHING) for at in MAIN),
    *(Place(at, Notice.FAILOVER) for at in WIRE),
    *(Place(at, Notice.ONE) for at in ONE),
)
MORE = (
    *(Place(at, Notice.NOTHING) for at in MORE_MAIN),
    *(Place(at, Notice.FAILOVER) for at in MORE_WIRE),
)
"""Beside those, of the same kinds: with ``SPEAKER_FAULTS_EVERYWHERE`` in the environment."""

CONSTANTS = {
    "speaker.node:ENVIRONMENT_SECONDS": 0.5,
    "speaker.node:KEY_SECONDS": 0.2,
    "speaker.forwarding.forwarder:TEND_SECONDS": 0.5,
    "speaker.beside.watch:FIRST_SECONDS": 0.5,
    "speaker.beside.watch:LOOK_SECONDS": 0.5,
    "speaker.interfaces.gateway:EVERY": 0.2,
    "speaker.telemetry.internal_errors:QUIET_SECONDS": 1.5,
}
"""What the speaker does now and then it does often, so that nobody has to wait for it here."""
