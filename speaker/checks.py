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
    severity: Severity


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

_SAID, _NONE, _NOBODY, _ELSE, _HANGS, _APART = Symptom
_E, _W = Severity
_NO_EIP = "manifests.md#why-a-service-has-no-eip"
_NOT_HERE = "manifests.md#why-this-node-does-not-answer-for-an-eip"
_CHECK = "operations.md#an-eip-does-not-answer"
_PEERS = "operations.md#several-hosts"
_NEEDS = "operations.md#what-it-needs"
_BESIDE = "beside-kube-proxy.md#what-the-speaker-sees-and-says"
_SWITCHES = "beside-kube-proxy.md#firewalls-and-switches"
_FROM_WHERE = "forwarding.md#who-reaches-an-eip-from-where"
_TABLES = "forwarding.md#limits"


_TABLE: tuple[tuple[str, Severity, Symptom, str, str], ...] = (
    (NO_RIGHT, _E, _SAID, _CHECK, "what the speaker knows it tells its own user and root, and nobody else"),
    ("speaker_frozen", _E, _SAID, _CHECK, "a process that is stopped answers for nothing, and its peers take its EIPs"),
    ("speaker_gone", _E, _SAID, _CHECK, "without a speaker this node answers for nothing"),
    ("speaker_silent", _E, _SAID, _CHECK, "a speaker that does not answer cannot be told what to do"),
    ("capabilities", _E, _SAID, _NEEDS, "without it the kernel refuses what the speaker is for"),
    ("bad_manifests", _W, _SAID, "manifests.md#what-cannot-be-read", "what runs is not what is on disk"),
    ("name_clash", _E, _APART, _PEERS,
     "two hosts of one name take each other's hellos for their own: one of them has to be silent"),
    ("bound_secondary", _E, _ELSE, _NOT_HERE,
     "the kernel answers for it on this host alone, and its own route is that of the primary"),
    ("host_address", _E, _ELSE, _NOT_HERE, "what is a host's own address nobody else may answer for"),
    ("external_ips", _E, _ELSE, "beside-kube-proxy.md#external-ips",
     "kube-proxy sends clients to another Service, whoever holds the EIP, and past source ranges"),
    ("not_asked", _E, _NONE, _NO_EIP, "the speaker serves what it was asked for, and nothing else"),
    ("pool_full", _E, _NONE, _NO_EIP, "without a free address nobody new gets one"),
    ("address_not_in_pool", _E, _NONE, _NO_EIP, "only what a pool offers can be given"),
    ("refused", _E, _NONE, _NO_EIP, "a Service without an EIP is reached by nobody"),
    ("no_such_link", _E, _NOBODY, _NOT_HERE, "no link, nobody who announces"),
    ("no_carrier", _E, _NOBODY, _NOT_HERE, "a link without a cable carries no answer"),
    ("link_down", _E, _NOBODY, _NOT_HERE, "a link that is down carries no answer"),
    ("no_route", _E, _NOBODY, _NOT_HERE, "`can_reach` names no link of this node"),
    ("no_subnet", _E, _NOBODY, _NOT_HERE, "no link of this node is on the EIP's segment"),
    ("no_link", _E, _NOBODY, _NOT_HERE, "this node has no link to announce the EIP on"),
    ("no_endpoint", _E, _HANGS, _NOT_HERE, "there is nobody to forward to"),
    ("none_ready", _E, _HANGS, _NOT_HERE, "connections are rejected until an endpoint is ready"),
    ("no_local_endpoint", _E, _HANGS, _NOT_HERE,
     "with traffic policy Local only a node with a ready endpoint may hold the EIP"),
    ("node_excluded", _E, _NOBODY, _NOT_HERE, "the label keeps every load balancer off this node"),
    ("node_not_selected", _E, _NOBODY, _NOT_HERE, "the pool's nodeSelector keeps this node out"),
    ("not_forwarded", _E, _NOBODY, _NOT_HERE, "nobody on this node would carry the packets"),
    ("not_eligible", _E, _NOBODY, _NOT_HERE, "this node must not answer for the EIP"),
    ("draining", _E, _NOBODY, _NOT_HERE, "a drained node takes no EIP until `speaker undrain`"),
    ("other_ethertype", _E, _APART, _PEERS, "nodes that do not hear each other both claim what is free"),
    ("wrong_key", _E, _APART, _PEERS, "a host with another key claims the same EIPs"),
    ("other_hello", _W, _APART, _PEERS, "failover takes as long as the slowest says, and the fast ones suspect it"),
    ("two_holders", _E, _APART, _PEERS, "clients reach whichever of the two they heard last"),
    ("clock_apart", _W, _APART, _PEERS,
     "a restarted speaker is believed late where its clock went back, and logs cannot be compared"),
    ("hellos_filtered", _W, _APART, "operations.md#hellos-are-filtered",
     "this node cannot take over from whom it does not hear"),
    ("kernel_answers", _E, _ELSE, _BESIDE, "clients reach whichever of the two answers first"),
    ("frames_dropped", _E, _NOBODY, _NEEDS,
     "what a rule drops at the link never reaches the speaker or the kernel's forwarding"),
    ("peer_answers", _E, _ELSE, _CHECK, "two nodes answer for one EIP, and clients reach whichever answers first"),
    ("stranger", _E, _ELSE, _CHECK, "clients reach another host than the one that serves the EIP"),
    ("address_in_use", _W, _ELSE, _CHECK,
     "who gets this address from the pool shares it with a host that knows nothing of that"),
    ("port_security", _E, _NOBODY, _SWITCHES,
     "clients find no MAC for the EIP, whichever node behind such a port holds it"),
    ("target_silent", _E, _NOBODY, _CHECK,
     "the link was chosen by a route to a host that is not there: it may be the wrong segment"),
    ("not_answered", _E, _NOBODY, _CHECK, "clients find no MAC for the EIP"),
    ("nobody_holds", _E, _NOBODY, _CHECK, "nobody answers for it"),
    ("gateway_silent", _E, _NOBODY, _CHECK, "clients beyond the gateway reach nothing here"),
    ("wireless", _W, _NOBODY, "troubleshooting.md#questions",
     "access points drop much of what is sent to all, hellos and announcements among it"),
    ("sick_link", _E, _APART, _PEERS, "what this node answers there is lost as often as its hellos are"),
    ("late_hellos", _W, _APART, _PEERS, "failover takes longer than usual on this link"),
    ("peer_silent", _W, _APART, _PEERS, "fewer nodes are left to take over"),
    ("versions_apart", _W, _APART, _PEERS, "an update that stopped half way leaves nodes that say and do other things"),
    ("one_subnet", _W, _APART, _PEERS, "the kernel answers on either link, and replies may leave by the other"),
    ("forwarding_off", _E, _HANGS, _NEEDS, "packets to the EIP end on this node"),
    ("firewall_drops", _E, _HANGS, _SWITCHES, "packets to the EIP, or their answers, end in it"),
    ("reverse_path", _E, _HANGS, "forwarding.md#several-links",
     "packets that come in on another link than the way back are dropped without a word"),
    ("martian_source", _W, _HANGS, _FROM_WHERE,
     "packets from an address that is bound here are dropped without a word"),
    ("bridge_unfiltered", _W, _HANGS, _FROM_WHERE,
     "a pod that asks for the EIP gets an answer from whom it did not ask"),
    ("no_hairpin", _W, _HANGS, _FROM_WHERE, "a pod that gets itself behind the EIP hears nothing back"),
    ("conntrack_full", _E, _HANGS, _TABLES, "new connections are dropped, whatever they are for"),
    ("conntrack_max", _W, _HANGS, _TABLES, "the limit that was asked for is not in force"),
    ("table_crowded", _W, _HANGS, _TABLES, "every packet takes longer"),
    ("ip_vs_missing", _E, _HANGS, _NEEDS, "the forwarder that is asked for cannot work on this kernel"),
    ("ipvs_settings", _E, _HANGS, _NEEDS, "IPVS works in another way than the EIPs need"),
    ("left_behind", _W, _HANGS, _NEEDS, "rules of another forwarder go on taking packets"),
    ("not_in_kernel", _E, _HANGS, _NEEDS, "what the kernel does not have it does not forward"),
    ("kube_proxy", _E, _HANGS, _BESIDE, "kube-proxy takes, deletes or lacks what the EIP needs"),
    ("backend_refuses", _E, _HANGS, _CHECK, "the host is there, and nothing listens on the port"),
    ("backend_silent", _E, _HANGS, _CHECK, "it is down, filtered, or its answers do not come back"),
    ("no_way_back", _E, _HANGS, _CHECK, "its answers go past this node, and clients refuse them"),
    ("api_silent", _W, _SAID, "kubernetes.md#what-happens-when", "EIPs go on being served, and nothing new is"),
    ("edge_fails", _W, _SAID, _CHECK, "a part of the speaker's work is not done until it works again"),
    ("internal_error", _W, _SAID, _CHECK, "a bug of the speaker's: what it concerned is set aside and tried again"),
    ("no_real_time", _W, _APART, _NEEDS, "on a busy host the speaker falls silent, and its EIPs move"),
)  # fmt: skip

KINDS = {name: Kind(name, symptom, why, docs, severity) for name, severity, symptom, docs, why in _TABLE}
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
