"""The catalogue of checks: what can be wrong, and a thing that is. Pure.

A running speaker makes the cheap checks all the time (``node/problems.py`` lists what they find) and once more when
``speaker doctor`` asks; the doctor adds those that ask the network. ``KINDS`` is in the order in which causes come
before what they cause: of several findings that break as much, the first named there is the likeliest cause.
docs/troubleshooting.md is held to it by a test.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum


class Symptom(StrEnum):
    """What people see, by which docs/troubleshooting.md is sorted."""

    NOTHING_SAID = "`speaker status` says nothing, or nothing new"
    NO_ADDRESS = "The Service has no EIP"
    NOBODY = "Nobody answers ARP or NDP for the EIP"
    SOMEBODY_ELSE = "Somebody else answers for the EIP"
    HANGS = "The EIP is answered, and connections hang or are refused"
    APART = "The nodes do not agree, or failover does not work"


class Severity(StrEnum):
    ERROR = "error"
    """Clients are not served, or by the wrong host."""
    WARNING = "warning"
    """They are, and something is worse than it should be, or will be."""


@dataclass(frozen=True, slots=True)
class Kind:
    """``why`` it matters, and ``docs``, a page with its anchor below docs/."""

    name: str
    symptom: Symptom
    why: str
    docs: str
    severity: Severity = Severity.ERROR


@dataclass(frozen=True, slots=True)
class Finding:
    """``kind``: a name in KINDS; ``what`` is wrong, a sentence; ``mend``: a command to paste, or what to do;
    ``eips``: how many EIPs it concerns, None for all of the node, or the one that ``eip`` names."""

    kind: str
    what: str
    mend: str
    eip: str = ""
    eips: int | None = None

    @property
    def severity(self) -> Severity:
        return KINDS[self.kind].severity

    def concerns(self, all_: int) -> int:
        """How many EIPs, of ``all_`` that the node knows."""
        return self.eips if self.eips is not None else 1 if self.eip else all_


NO_RIGHT = "no_right"
"""Of whoever asks: what is wrong with the node, if anything, is not known then."""

_NO_EIP = "manifests.md#why-a-service-has-no-eip"
_UNREAD = "manifests.md#what-cannot-be-read"
_NOT_HERE = "manifests.md#why-this-node-does-not-answer-for-an-eip"
_CHECK = "operations.md#an-eip-does-not-answer"
_PEERS = "operations.md#several-hosts"
_NEEDS = "operations.md#what-it-needs"
_BESIDE = "beside-kube-proxy.md#what-the-speaker-sees-and-says"


def _kinds(symptom: Symptom, docs: str, *named: tuple[str, str]) -> tuple[Kind, ...]:
    return tuple(
        Kind(name, symptom, why, docs, Severity.WARNING if name in _WARNINGS else Severity.ERROR) for name, why in named
    )


_WARNINGS = frozenset({
    "bad_manifests", "other_hello", "clock_apart", "hellos_filtered", "address_in_use", "wireless", "peer_silent",
    "versions_apart", "one_subnet", "martian_source", "bridge_unfiltered", "no_hairpin", "table_crowded", "api_silent",
    "internal_error", "edge_fails", "no_real_time", "late_hellos", "left_behind", "conntrack_max",
})  # fmt: skip


_ORDER: tuple[Kind, ...] = (
    *_kinds(
        Symptom.NOTHING_SAID,
        _CHECK,
        (NO_RIGHT, "what the speaker knows it tells its own user and root, and nobody else"),
        ("speaker_frozen", "a process that is stopped answers for nothing, and its peers take its EIPs"),
        ("speaker_gone", "without a speaker this node answers for nothing"),
        ("speaker_silent", "a speaker that does not answer cannot be told what to do"),
    ),
    *_kinds(Symptom.NOTHING_SAID, _NEEDS, ("capabilities", "without it the kernel refuses what the speaker is for")),
    *_kinds(Symptom.NOTHING_SAID, _UNREAD, ("bad_manifests", "what runs is not what is on disk")),
    *_kinds(
        Symptom.APART,
        _PEERS,
        ("name_clash", "two hosts of one name take each other's hellos for their own: one of them has to be silent"),
    ),
    *_kinds(
        Symptom.SOMEBODY_ELSE,
        _NOT_HERE,
        ("bound_secondary", "the kernel answers for it on this host alone, and its own route is that of the primary"),
        ("host_address", "what is a host's own address nobody else may answer for"),
    ),
    *_kinds(
        Symptom.SOMEBODY_ELSE,
        "beside-kube-proxy.md#external-ips",
        ("external_ips", "kube-proxy sends clients to another Service, whoever holds the EIP, and past source ranges"),
    ),
    *_kinds(
        Symptom.NO_ADDRESS,
        _NO_EIP,
        ("not_asked", "the speaker serves what it was asked for, and nothing else"),
        ("pool_full", "without a free address nobody new gets one"),
        ("address_not_in_pool", "only what a pool offers can be given"),
        ("refused", "a Service without an EIP is reached by nobody"),
    ),
    *_kinds(
        Symptom.NOBODY,
        _NOT_HERE,
        ("no_such_link", "no link, nobody who announces"),
        ("no_carrier", "a link without a cable carries no answer"),
        ("link_down", "a link that is down carries no answer"),
        ("no_route", "`can_reach` names no link of this node"),
        ("no_subnet", "no link of this node is on the EIP's segment"),
        ("no_link", "this node has no link to announce the EIP on"),
    ),
    *_kinds(
        Symptom.HANGS,
        _NOT_HERE,
        ("no_endpoint", "there is nobody to forward to"),
        ("none_ready", "connections are rejected until an endpoint is ready"),
        ("no_local_endpoint", "with traffic policy Local only a node with a ready endpoint may hold the EIP"),
    ),
    *_kinds(
        Symptom.NOBODY,
        _NOT_HERE,
        ("node_excluded", "the label keeps every load balancer off this node"),
        ("node_not_selected", "the pool's nodeSelector keeps this node out"),
        ("not_forwarded", "nobody on this node would carry the packets"),
        ("not_eligible", "this node must not answer for the EIP"),
        ("draining", "a drained node takes no EIP until `speaker undrain`"),
    ),
    *_kinds(
        Symptom.APART,
        _PEERS,
        ("other_ethertype", "nodes that do not hear each other both claim what is free"),
        ("wrong_key", "a host with another key claims the same EIPs"),
        ("other_hello", "failover takes as long as the slowest says, and the fast ones suspect it"),
        ("two_holders", "clients reach whichever of the two they heard last"),
        ("clock_apart", "a restarted speaker is believed late where its clock went back, and logs cannot be compared"),
    ),
    *_kinds(
        Symptom.APART,
        "operations.md#hellos-are-filtered",
        ("hellos_filtered", "this node cannot take over from whom it does not hear"),
    ),
    *_kinds(
        Symptom.SOMEBODY_ELSE,
        "beside-kube-proxy.md#what-the-speaker-sees-and-says",
        ("kernel_answers", "clients reach whichever of the two answers first"),
    ),
    *_kinds(
        Symptom.NOBODY,
        _NEEDS,
        ("frames_dropped", "what a rule drops at the link never reaches the speaker or the kernel's forwarding"),
    ),
    *_kinds(
        Symptom.SOMEBODY_ELSE,
        _CHECK,
        ("peer_answers", "two nodes answer for one EIP, and clients reach whichever answers first"),
        ("stranger", "clients reach another host than the one that serves the EIP"),
        ("address_in_use", "who gets this address from the pool shares it with a host that knows nothing of that"),
    ),
    *_kinds(
        Symptom.NOBODY,
        "beside-kube-proxy.md#firewalls-and-switches",
        ("port_security", "clients find no MAC for the EIP, whichever node behind such a port holds it"),
    ),
    *_kinds(
        Symptom.NOBODY,
        _CHECK,
        ("target_silent", "the link was chosen by a route to a host that is not there: it may be the wrong segment"),
        ("not_answered", "clients find no MAC for the EIP"),
        ("nobody_holds", "nobody answers for it"),
        ("gateway_silent", "clients beyond the gateway reach nothing here"),
    ),
    *_kinds(
        Symptom.NOBODY,
        "troubleshooting.md#questions",
        ("wireless", "access points drop much of what is sent to all, hellos and announcements among it"),
    ),
    *_kinds(
        Symptom.APART,
        _PEERS,
        ("sick_link", "what this node answers there is lost as often as its hellos are"),
        ("late_hellos", "failover takes longer than usual on this link"),
        ("peer_silent", "fewer nodes are left to take over"),
        ("versions_apart", "an update that stopped half way leaves nodes that say and do other things"),
        ("one_subnet", "the kernel answers on either link, and replies may leave by the other"),
    ),
    *_kinds(
        Symptom.HANGS,
        _NEEDS,
        ("forwarding_off", "packets to the EIP end on this node"),
    ),
    *_kinds(
        Symptom.HANGS,
        "beside-kube-proxy.md#firewalls-and-switches",
        ("firewall_drops", "packets to the EIP, or their answers, end in it"),
    ),
    *_kinds(
        Symptom.HANGS,
        "forwarding.md#several-links",
        ("reverse_path", "packets that come in on another link than the way back are dropped without a word"),
    ),
    *_kinds(
        Symptom.HANGS,
        "forwarding.md#who-reaches-an-eip-from-where",
        ("martian_source", "packets from an address that is bound here are dropped without a word"),
        ("bridge_unfiltered", "a pod that asks for the EIP gets an answer from whom it did not ask"),
        ("no_hairpin", "a pod that gets itself behind the EIP hears nothing back"),
    ),
    *_kinds(
        Symptom.HANGS,
        "forwarding.md#limits",
        ("conntrack_full", "new connections are dropped, whatever they are for"),
        ("conntrack_max", "the limit that was asked for is not in force"),
        ("table_crowded", "every packet takes longer"),
    ),
    *_kinds(
        Symptom.HANGS,
        _NEEDS,
        ("ip_vs_missing", "the forwarder that is asked for cannot work on this kernel"),
        ("ipvs_settings", "IPVS works in another way than the EIPs need"),
        ("left_behind", "rules of another forwarder go on taking packets"),
        ("not_in_kernel", "what the kernel does not have it does not forward"),
    ),
    *_kinds(
        Symptom.HANGS,
        _BESIDE,
        ("kube_proxy", "kube-proxy takes, deletes or lacks what the EIP needs"),
    ),
    *_kinds(
        Symptom.HANGS,
        _CHECK,
        ("backend_refuses", "the host is there, and nothing listens on the port"),
        ("backend_silent", "it is down, filtered, or its answers do not come back"),
        ("no_way_back", "its answers go past this node, and clients refuse them"),
    ),
    *_kinds(
        Symptom.NOTHING_SAID,
        "kubernetes.md#what-happens-when",
        ("api_silent", "EIPs go on being served, and nothing new is"),
    ),
    *_kinds(
        Symptom.NOTHING_SAID,
        _CHECK,
        ("edge_fails", "a part of the speaker's work is not done until it works again"),
        ("internal_error", "a bug of the speaker's: what it concerned is set aside and tried again"),
    ),
    *_kinds(Symptom.APART, _NEEDS, ("no_real_time", "on a busy host the speaker falls silent, and its EIPs move")),
)

KINDS = {kind.name: kind for kind in _ORDER}
_RANKS = {name: rank for rank, name in enumerate(KINDS)}


_OBJECT = re.compile(
    r"kubectl (-n (?P<namespace>\S+) )?\w+ (?P<kind>eip|service|endpointslices)"
    r"( (?P<name>[^-;\s]\S*)| -l kubernetes\.io/service-name=(?P<service>[^;\s]+))?"
)
_KINDS = {"eip": "Eip", "service": "Service", "endpointslices": "EndpointSlice"}


def by_files(finding: Finding) -> Finding:
    """As it is mended where no API says what is wanted: in the files that ``speaker run DIR`` reads."""
    command, _, comment = finding.mend.partition("   # ")
    told = comment and f": {comment}"
    if (found := _OBJECT.match(command)) is not None:
        names = (_KINDS[found["kind"]], found["namespace"], found["name"])
        of_service = f"an EndpointSlice of {found['namespace']}/{found['service']}"
        named = of_service if found["service"] else "/".join(filter(None, names))
        mend = f"speaker validate DIR   # once {named} is corrected there{told}"
    elif command.startswith("kubectl get pods "):
        mend = "ss -tln   # on that host"
    elif command.startswith("kubectl get node "):
        mend = f"speaker run DIR --node-labels K=V,…   # this node's labels{told}"
    else:
        return finding
    return replace(finding, mend=mend)


def said(kind: str, sentences: Iterable[str], mend: str) -> tuple[Finding, ...]:
    return tuple(Finding(kind, sentence, mend) for sentence in sentences)


def ranked(findings: Iterable[Finding], eips: int = 1) -> list[Finding]:
    """The likeliest cause first: what breaks most of the node's ``eips``, and of those that break as many what the
    catalogue names first. What was said of a kind in the same words is said once."""
    distinct: dict[tuple[str, str], Finding] = {}
    for each in findings:
        distinct.setdefault((each.kind, each.what), each)
    return sorted(distinct.values(), key=lambda one: (-_breaks(one, eips), _RANKS[one.kind]))


def _breaks(finding: Finding, eips: int) -> int:
    return finding.concerns(eips) if finding.severity is Severity.ERROR else 0


FEW = 3


def summed(findings: Sequence[Finding]) -> Iterator[tuple[Finding, tuple[Finding, ...]]]:
    """In their order the first FEW of each kind; the last of those comes with the rest of its kind."""
    told = Counter[str]()
    for finding in findings:
        told[finding.kind] += 1
        if told[finding.kind] <= FEW:
            alike = [each for each in findings if each.kind == finding.kind] if told[finding.kind] == FEW else []
            yield finding, tuple(alike[FEW:])
