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
    """``at``: ``module:function``, perhaps ``@`` and the EIP or Service that the fault is about, perhaps ``!`` and what
    is raised instead of a TypeError."""

    at: str
    notice: Notice


EIP, IPV6_EIP, SERVICE = "192.0.2.200", "2001:db8:0:1::200", "lab/echo-192-0-2-200"

MAIN = (
    # what is asked: files
    "speaker.standalone.watch:changes",
    "speaker.standalone.manifests:load",
    "speaker.standalone.run:Manifests.view",
    "speaker.allocator.settle:settle",
    "speaker.standalone.run:Manifests._put",
    # what the links look like
    "speaker.interfaces.watcher:Watcher._list_small_parts",
    "speaker.interfaces.gateway:_Watch.ask",
    # decisions and plans
    "speaker.node.host:Host._bring_about",
    "speaker.node.decide:NodeDecider.decide",
    "speaker.interfaces.resolve:resolve",
    "speaker.forwarding.plan:Planner.plan",
    # effects
    "speaker.forwarding.nftables.forwarder:NftablesForwarder.apply",
    "speaker.forwarding.nftables.forwarder:NftablesForwarder.tend",
    "speaker.forwarding.nftables.forwarder:NftablesForwarder.problems",
    "speaker.forwarding.nftables.nft:_nft",
    "speaker.forwarding.conntrack:forget",
    # what the wire process is told, and tells
    "speaker.wire.remote:Wire.offer",
    "speaker.wire.remote:Wire.withdraw_except",
    "speaker.wire.remote:Wire.claim_statuses",
    "speaker.wire.remote:Wire._hear",
    "speaker.node.gauges:count_event",
    "speaker.node.report:Report.hear",
    # what people are told
    "speaker.node.report:Report.settled",
    "speaker.node.report:Report.decided",
    "speaker.node.report:Report.brought_about",
    "speaker.node.report:Report.publish",
    "speaker.node.report:Report.status",
    "speaker.node.gauges:Counted.own_loop_delay",
    "speaker.telemetry.metrics:exposition",
    # looking around
    "speaker.interfaces.martians:martian_sources",
    "speaker.forwarding.limits:look",
    "speaker.kubeproxy.watch:KubeProxyWatch._look",
    "speaker.node.key_file:KeyFile._stamp",
)
MORE_MAIN = (
    "speaker.standalone.watch:_look",
    "speaker.standalone.document:parse",
    "speaker.api.reading:read_world",
    "speaker.standalone.run:Manifests._read",
    "speaker.allocator.assign:Allocator.usage",
    "speaker.interfaces.watcher:Watcher._drain",
    "speaker.interfaces.rtnetlink:read_address",
    "speaker.interfaces.addresses:own_addresses",
    "speaker.node.host:Host._decide",
    "speaker.node.decide:_LinkChoice.choose",
    "speaker.ownership.eligibility:veto",
    "speaker.forwarding.changes:diff",
    "speaker.forwarding.nftables.forwarder:NftablesForwarder.approximations",
    "speaker.forwarding.nftables.nft:run",
    "speaker.wire.remote:Wire.addresses",
    "speaker.wire.remote:Wire._ask",
    "speaker.node.report:Report._say",
    "speaker.node.gauges:_count",
    "speaker.node.standing:Noted.hear",
    "speaker.node.report:Report.forwarding",
    "speaker.node.report:Report.problems",
    "speaker.node.report:Report.health",
    "speaker.node.report:Report.martians",
    "speaker.node.report:Report.limits",
    "speaker.node.report:Report.kube_proxy",
    "speaker.system.files:write_atomically",
    "speaker.kubeproxy.watch:KubeProxyWatch.follow",
    "speaker.ownership.hellos.keyfile:read_keys",
)

WIRE = (
    "speaker.wire.shared:SharedOwner._step",
    "speaker.wire.hello_links:HelloLinks._hear",
    "speaker.wire.shared:SharedOwner._take",
    "speaker.wire.shared:SharedOwner._let_go",
    "speaker.wire.shared:SharedOwner.offer",
    "speaker.ownership.machine.machine:Ownership.step",
    "speaker.ownership.machine.holding:Claims.judge",
    "speaker.ownership.machine.hearing:Hearing.hear",
    "speaker.ownership.hellos.frames:encode",
    "speaker.ownership.hellos.frames:decode",
    "speaker.ownership.hellos.hellos:Hellos.send",
    "speaker.ownership.hellos.hellos:Hellos.receive",
    "speaker.layer2.answer:answer_arp",
    "speaker.layer2.answer:answer_ndp",
    "speaker.packets.packet_socket:PacketSocket.receive",
    "speaker.layer2.link:Links.take",
    "speaker.layer2.sender:Sender._announce_slice",
    "speaker.interfaces.carrier:_has_carrier",
    "speaker.wire.sender:EventSender.flush",
)
MORE_WIRE = (
    "speaker.wire.shared:SharedOwner._carry_out",
    "speaker.wire.shared:SharedOwner._meet",
    "speaker.wire.hello_links:HelloLinks.send",
    "speaker.wire.shared:SharedOwner.withdraw",
    "speaker.wire.shared:SharedOwner.use_links",
    "speaker.wire.shared:SharedOwner.claim_status",
    "speaker.wire.shared:SharedOwner.peers",
    "speaker.ownership.machine.machine:Ownership.next_wake",
    "speaker.ownership.machine.machine:Ownership._speak",
    "speaker.ownership.machine.peers:Peers.hear",
    "speaker.ownership.machine.peers:Peer.learn",
    "speaker.ownership.hellos.frames:peek",
    "speaker.layer2.responder:Responder.answer_turn",
    "speaker.packets.packet_socket:PacketSocket.send",
    "speaker.layer2.link:Links.drop",
    "speaker.layer2.link:Links.extend",
    "speaker.layer2.link:LinkResponder._work_off_slice",
    "speaker.wire.sender:EventSender.loop_delay",
)

ONE = (
    f"speaker.node.decide:_one@{EIP}",
    f"speaker.ownership.eligibility:veto@{IPV6_EIP}",
    f"speaker.forwarding.plan:_served_here@{SERVICE}",
)

PLACES = (
    *(Place(at, Notice.NOTHING) for at in MAIN),
    *(Place(at, Notice.FAILOVER) for at in WIRE),
    *(Place(at, Notice.ONE) for at in ONE),
)
LASTING = (
    # answering
    "speaker.layer2.answer:answer_arp!CancelledError",
    "speaker.layer2.responder:Responder._answer_batch",
    "speaker.layer2.answer:Claims.expired",
    # what goes before an answer
    "speaker.wire.hello_links:HelloLinks.__iter__",
    # what comes after a hello left
    "speaker.wire.sender:EventSender.count",
    "speaker.layer2.link:Links.extend",
)
MORE_LASTING = (
    "speaker.layer2.answer:answer_arp",
    "speaker.layer2.answer:answer_ndp",
    "speaker.layer2.responder:Responder._send",
    "speaker.layer2.responder:Responder.answer_turn",
    "speaker.layer2.sender:Sender._announce_slice",
)
"""Beside those above, for seconds on end: what an EIP costs is a failover all the same."""
MORE = (
    *(Place(at, Notice.NOTHING) for at in MORE_MAIN),
    *(Place(at, Notice.FAILOVER) for at in MORE_WIRE),
)
"""Beside those, of the same kinds: with ``SPEAKER_FAULTS_EVERYWHERE`` in the environment."""

CONSTANTS = {
    "speaker.node.host:ENVIRONMENT_SECONDS": 0.5,
    "speaker.node.key_file:KEY_SECONDS": 0.2,
    "speaker.forwarding.forwarder:TEND_SECONDS": 0.5,
    "speaker.kubeproxy.watch:FIRST_SECONDS": 0.5,
    "speaker.kubeproxy.watch:LOOK_SECONDS": 0.5,
    "speaker.interfaces.gateway:EVERY": 0.2,
    "speaker.telemetry.logs:QUIET_SECONDS": 1.5,
    "speaker.layer2.link:RETRY_MAX": 0.5,
    "speaker.wire.hello_links:RETRY_MAX": 0.5,
}
"""What the speaker does now and then it does often, so that nobody has to wait for it here."""
