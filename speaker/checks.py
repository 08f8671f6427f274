"""The catalogue of checks: everything that can be wrong, and the type of a finding. Pure.

A running speaker makes the cheap checks all the time (``node/problems.py`` lists what they find), and again when
``speaker doctor`` asks. The doctor adds the checks that ask the network. In ``KINDS`` causes come before their effects:
of findings that break equally many EIPs, the one named first there is the likeliest cause. A test compares
docs/troubleshooting.md with this file.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property


class Symptom(StrEnum):
    """What people see. docs/troubleshooting.md is sorted by it."""

    NOTHING_SAID = "`speaker status` says nothing, or nothing new"
    NO_ADDRESS = "The Service has no EIP"
    NOBODY = "Nobody answers ARP or NDP for the EIP"
    SOMEBODY_ELSE = "Somebody else answers for the EIP"
    HANGS = "The EIP is answered, and connections hang or are refused"
    APART = "The nodes do not agree, or failover does not work"


class Severity(StrEnum):
    ERROR = "error"
    """Clients are not served, or are served by the wrong host."""
    WARNING = "warning"
    """Clients are served, but something is worse than it should be, or soon will be."""


@dataclass(frozen=True, slots=True)
class Kind:
    """``why``: why it matters. ``docs``: a page with its anchor, below docs/."""

    name: str
    symptom: Symptom
    why: str
    docs: str
    severity: Severity


@dataclass(frozen=True, slots=True)
class Finding:
    """``kind``: a name in KINDS. ``what``: a sentence that says what is wrong. ``mend``: a command to paste, or what to
    do. ``eips``: how many EIPs it concerns; None for the whole node, or for the one that ``eip`` names. ``names``: some
    of several EIPs. ``alike``: how many other findings of this kind it stands for."""

    kind: str
    what: str
    mend: str
    eip: str = ""
    eips: int | None = None
    names: tuple[str, ...] = ()
    alike: int = 0

    @property
    def severity(self) -> Severity:
        return KINDS[self.kind].severity

    @property
    def sentence(self) -> str:
        """What is wrong, and how many more of this kind there are."""
        more = [f"and {self.alike} more of this kind"] if self.alike else []
        if self.names:
            more.append(f"{self.eips} EIPs: {', '.join(self.names)}{', …' if self.concerns(0) > FEW else ''}")
        return f"{self.what} ({'; '.join(more)})" if more else self.what

    def concerns(self, all_: int) -> int:
        """How many EIPs it concerns, of ``all_`` that the node knows."""
        return self.eips if self.eips is not None else 1 if self.eip else all_


NO_RIGHT = "no_right"
"""The user who asks lacks the right, so nothing is known about the node."""

_SAID, _NONE, _NOBODY, _ELSE, _HANGS, _APART = Symptom
_E, _W = Severity
_NO_EIP = "manifests.md#why-a-service-has-no-eip"
_NOT_HERE = "manifests.md#why-this-node-does-not-answer-for-an-eip"
_HEALTH = "manifests.md#health-checks"
_CHECK = "operations.md#an-eip-does-not-answer"
_PEERS = "operations.md#several-hosts"
_NEEDS = "operations.md#what-it-needs"
_BESIDE = "beside-kube-proxy.md#what-the-speaker-sees-and-says"
_SWITCHES = "beside-kube-proxy.md#firewalls-and-switches"
_FROM_WHERE = "forwarding.md#who-reaches-an-eip-from-where"
_TABLES = "forwarding.md#limits"


_TABLE: tuple[tuple[str, Severity, Symptom, str, str], ...] = (
    (NO_RIGHT, _E, _SAID, _CHECK, "the speaker answers only its own user and root"),
    ("speaker_frozen", _E, _SAID, _CHECK, "a stopped process answers nothing, and its peers take its EIPs"),
    ("speaker_gone", _E, _SAID, _CHECK, "without a speaker this node answers for nothing"),
    ("speaker_slow", _W, _SAID, _CHECK, "changes wait, though it may still answer for its EIPs in time"),
    ("speaker_silent", _E, _SAID, _CHECK, "a speaker that does not answer cannot be controlled"),
    ("capabilities", _E, _SAID, _NEEDS, "without this capability the kernel refuses what the speaker has to do"),
    ("bad_manifests", _W, _SAID, "manifests.md#what-cannot-be-read", "the files on disk are not what is in force"),
    ("name_clash", _E, _APART, _PEERS,
     "two hosts with one name mistake each other's hellos for their own, so one of them stays silent"),
    ("bound_secondary", _E, _ELSE, _NOT_HERE,
     "only this host's kernel answers for the EIP, and uses the primary address to reply"),
    ("host_address", _E, _ELSE, _NOT_HERE, "nobody else may answer for a host's own address"),
    ("external_ips", _E, _ELSE, "beside-kube-proxy.md#external-ips",
     "kube-proxy sends clients to another Service, whoever holds the EIP, and ignores source ranges"),
    ("not_asked", _E, _NONE, _NO_EIP, "the speaker serves only what it is asked for"),
    ("pool_full", _E, _NONE, _NO_EIP, "no new Service gets an address from this pool"),
    ("address_not_in_pool", _E, _NONE, _NO_EIP, "only a pool's own addresses can be given"),
    ("refused", _E, _NONE, _NO_EIP, "nobody can reach a Service without an EIP"),
    ("no_such_link", _E, _NOBODY, _NOT_HERE, "without the link nobody can announce the EIP"),
    ("no_carrier", _E, _NOBODY, _NOT_HERE, "a link without a carrier carries no answer"),
    ("link_down", _E, _NOBODY, _NOT_HERE, "a link that is down carries no answer"),
    ("no_route", _E, _NOBODY, _NOT_HERE, "`can_reach` leads to no link of this node"),
    ("no_subnet", _E, _NOBODY, _NOT_HERE, "no link of this node is on the EIP's segment"),
    ("answers_elsewhere", _E, _HANGS, "forwarding.md#several-links",
     "clients are not answered, whoever holds the EIP and however well it forwards"),
    ("no_link", _E, _NOBODY, _NOT_HERE, "this node has no link to announce the EIP on"),
    ("forwarding_off", _E, _HANGS, _NEEDS, "packets to the EIP end on this node"),
    ("no_endpoint", _E, _HANGS, _NOT_HERE, "there is nothing to forward to"),
    ("none_ready", _E, _HANGS, _NOT_HERE, "connections are rejected until an endpoint is ready"),
    ("all_unwell", _E, _HANGS, _HEALTH, "all endpoints get traffic although their checks fail"),
    ("no_local_endpoint", _E, _HANGS, _NOT_HERE,
     "with traffic policy Local only a node with a ready endpoint may hold the EIP"),
    ("node_excluded", _E, _NOBODY, _NOT_HERE, "the label keeps every load balancer off this node"),
    ("node_not_selected", _E, _NOBODY, _NOT_HERE, "the pool's nodeSelector excludes this node"),
    ("not_forwarded", _E, _NOBODY, _NOT_HERE, "nothing on this node would forward the packets"),
    ("not_eligible", _E, _NOBODY, _NOT_HERE, "this node must not answer for the EIP"),
    ("draining", _E, _NOBODY, _NOT_HERE, "a drained node takes no EIP until `speaker undrain`"),
    ("other_ethertype", _E, _APART, _PEERS, "nodes that do not hear each other both claim free EIPs"),
    ("wrong_key", _E, _APART, _PEERS, "a host with another key claims the same EIPs"),
    ("other_hello", _W, _APART, _PEERS, "failover takes as long as the slowest node's hello interval"),
    ("two_holders", _E, _APART, _PEERS, "clients reach the node that they heard last"),
    ("clock_apart", _W, _APART, _PEERS,
     "if its clock went back, peers believe a restarted speaker only late, and logs cannot be compared"),
    ("hellos_filtered", _W, _APART, "operations.md#hellos-are-filtered",
     "this node cannot take over from a node that it does not hear"),
    ("kernel_answers", _E, _ELSE, _BESIDE, "clients reach whichever host answers first"),
    ("frames_dropped", _E, _NOBODY, _NEEDS,
     "frames that a rule drops on the link reach neither the speaker nor the kernel's forwarding"),
    ("peer_answers", _E, _ELSE, _CHECK, "two nodes answer for one EIP, and clients reach whichever answers first"),
    ("stranger", _E, _ELSE, _CHECK, "clients reach a host that does not serve the EIP"),
    ("address_in_use", _W, _ELSE, _CHECK,
     "a Service that gets this address shares it with a host that does not know of it"),
    ("port_security", _E, _NOBODY, _SWITCHES,
     "clients find no MAC for the EIP, whichever node behind such a port holds it"),
    ("target_silent", _E, _NOBODY, _CHECK,
     "the link was chosen by a route to a host that does not answer, so it may be the wrong segment"),
    ("multicast_lost", _E, _NOBODY, _SWITCHES, "clients ask everybody, so they find no MAC for the EIP"),
    ("not_answered", _E, _NOBODY, _CHECK, "clients find no MAC for the EIP"),
    ("nobody_holds", _E, _NOBODY, _CHECK, "nobody answers for the EIP"),
    ("gateway_silent", _E, _NOBODY, _CHECK, "clients beyond the gateway reach nothing here"),
    ("wireless", _W, _NOBODY, "troubleshooting.md#questions",
     "access points drop many broadcasts, including hellos and announcements"),
    ("mute", _E, _APART, _PEERS, "clients do not hear this node either, and others take over what it holds there"),
    ("sick_link", _E, _APART, _PEERS, "this node's answers are lost on that link as often as its hellos"),
    ("no_broadcasts", _E, _APART, _PEERS, "clients ask by broadcast, so this node cannot answer them"),
    ("deaf_peer", _W, _APART, _PEERS, "a node that hears nobody gives up what it holds"),
    ("hellos_lost", _W, _APART, _PEERS, "answers are lost as often, and failover comes late or for nothing"),
    ("late_hellos", _W, _APART, _PEERS, "failover takes longer than usual on this link"),
    ("peer_silent", _W, _APART, _PEERS, "fewer nodes are left to take over"),
    ("no_peers", _W, _APART, _PEERS, "nobody could take over from this node"),
    ("versions_apart", _W, _APART, _PEERS, "a half-finished update leaves nodes that behave differently"),
    ("one_subnet", _W, _APART, _PEERS, "the kernel answers on either link, and replies may leave by the other"),
    ("firewall_drops", _E, _HANGS, _SWITCHES, "rules drop packets to the EIP or its answers, or send them elsewhere"),
    ("drop_policy", _W, _HANGS, _SWITCHES, "packets that no rule accepts are dropped, including those of EIPs"),
    ("reverse_path", _E, _HANGS, "forwarding.md#several-links",
     "packets that arrive on a link other than their way back are dropped silently"),
    ("martian_source", _W, _HANGS, _FROM_WHERE,
     "packets from an address that is bound here are dropped silently"),
    ("bridge_unfiltered", _W, _HANGS, _FROM_WHERE,
     "a pod that uses the EIP gets its answer from an address that it did not ask"),
    ("no_hairpin", _W, _HANGS, _FROM_WHERE, "a pod that reaches itself through the EIP gets no answer"),
    ("conntrack_full", _E, _HANGS, _TABLES, "all new connections are dropped"),
    ("conntrack_max", _W, _HANGS, _TABLES, "the requested limit is not in force"),
    ("table_crowded", _W, _HANGS, _TABLES, "every packet takes longer"),
    ("ip_vs_missing", _E, _HANGS, _NEEDS, "the requested forwarder cannot work on this kernel"),
    ("ipvs_settings", _E, _HANGS, _NEEDS, "IPVS is not set up as the EIPs need it"),
    ("left_behind", _W, _HANGS, _NEEDS, "rules of another forwarder still take packets"),
    ("not_in_kernel", _E, _HANGS, _NEEDS, "the kernel cannot forward what it does not have"),
    ("kube_proxy", _E, _HANGS, _BESIDE, "kube-proxy takes, deletes or lacks what the EIP needs"),
    ("backend_refuses", _E, _HANGS, _CHECK, "the host is there, but nothing listens on the port"),
    ("backend_silent", _E, _HANGS, _CHECK, "the host is down or filtered, or its answers do not come back"),
    ("endpoint_unwell", _W, _HANGS, _HEALTH, "fewer endpoints carry the load, until this one's checks succeed again"),
    ("checks_late", _W, _HANGS, _HEALTH, "an endpoint that fails is noticed late, or not at all"),
    ("no_way_back", _E, _HANGS, _CHECK, "its answers bypass this node, and clients refuse them"),
    ("api_silent", _W, _SAID, "kubernetes.md#what-happens-when", "EIPs are still served, but changes wait"),
    ("edge_fails", _W, _SAID, _CHECK, "a part of the speaker's work waits until this works again"),
    ("internal_error", _W, _SAID, _CHECK, "a bug in the speaker: the object concerned is set aside and tried again"),
    ("no_real_time", _W, _APART, _NEEDS, "on a busy host the speaker may fall silent, and its EIPs move"),
)  # fmt: skip

KINDS = {name: Kind(name, symptom, why, docs, severity) for name, severity, symptom, docs, why in _TABLE}
_RANKS = {name: rank for rank, name in enumerate(KINDS)}


VALIDATE = "speaker validate /etc/eip-speaker"
"""A command that lists the mistakes in the files, where the service reads them (manifests/systemd/)."""
_OBJECT = re.compile(
    r"kubectl (-n (?P<namespace>\S+) )?\w+ (?P<kind>eip|service|endpointslices)"
    r"( (?P<name>[^-;\s]\S*)| -l kubernetes\.io/service-name=(?P<service>[^;\s]+))?"
)
_KINDS = {"eip": "Eip", "service": "Service", "endpointslices": "EndpointSlice"}


def by_files(finding: Finding) -> Finding:
    """The same finding for a node that reads files (``speaker run DIR``), not an API: it is mended in those files."""
    command, _, comment = finding.mend.partition("   # ")
    told = comment and f": {comment}"
    if (found := _OBJECT.match(command)) is not None:
        names = (_KINDS[found["kind"]], found["namespace"], found["name"])
        of_service = f"an EndpointSlice of {found['namespace']}/{found['service']}"
        named = of_service if found["service"] else "/".join(filter(None, names))
        mend = f"{VALIDATE}   # after you correct {named} there{told}"
    elif command.startswith("kubectl get pods "):
        mend = "ss -tln   # on that host"
    elif command.startswith("kubectl get node "):
        mend = f"systemctl edit eip-speaker   # --node-labels with this node's labels{told}"
    else:
        return finding
    return replace(finding, mend=mend)


def said(kind: str, sentences: Iterable[str], mend: str) -> tuple[Finding, ...]:
    return tuple(Finding(kind, sentence, mend) for sentence in sentences)


FEW = 3
"""How many EIPs are named when more have the same trouble."""


class Group:
    """Findings of one kind: each sentence once, the most frequent cause first. ``all_``: how many EIPs the node has."""

    def __init__(self, findings: Iterable[Finding], all_: int) -> None:
        found, self._all = [*findings], all_
        causes = Counter(each.mend for each in found)
        ordered = sorted(found, key=lambda one: (-one.concerns(all_), -causes[one.mend]))
        distinct: dict[str, Finding] = {}
        for each in ordered:
            distinct.setdefault(each.what, each)
        self.findings = [*distinct.values()]
        self._names = [*dict.fromkeys(name for each in found for name in (each.eip, *each.names) if name)]

    @cached_property
    def eips(self) -> int:
        """How many EIPs these findings concern."""
        counted = sum(each.eips or 0 for each in self.findings)
        anywhere = any(each.eips is None and not each.eip for each in self.findings)
        return self._all if anywhere else max(counted, len(self._names))

    @property
    def rank(self) -> tuple[int, int]:
        """Whatever breaks most EIPs comes first; of equals, what the catalogue names first."""
        first = self.findings[0]
        return -self.eips if first.severity is Severity.ERROR else 0, _RANKS[first.kind]

    def told(self, few: int = 1) -> list[Finding]:
        """Findings about EIPs are merged into one. Of others, the first ``few`` remain, and the last of those stands
        for the rest."""
        alone = [] if self._names else self.findings[: min(few, len(self.findings)) - 1]
        first, *rest = self.findings[len(alone) :]
        alike = max(len(rest), *(each.alike for each in self.findings))
        if self.eips < 2 or not self._names:
            return [*alone, replace(first, alike=alike)]
        return [replace(first, eip="", eips=self.eips, names=tuple(self._names[:FEW]), alike=alike)]


def groups(findings: Iterable[Finding], eips: int = 1) -> list[Group]:
    """By kind, with the likeliest cause first. ``eips``: how many EIPs the node knows."""
    kinds: dict[str, list[Finding]] = {}
    for each in findings:
        kinds.setdefault(each.kind, []).append(each)
    return sorted((Group(found, eips) for found in kinds.values()), key=lambda group: group.rank)


def ranked(findings: Iterable[Finding], eips: int = 1) -> list[Finding]:
    """The likeliest cause first, each sentence once."""
    return [each for group in groups(findings, eips) for each in group.findings]


def grouped(findings: Iterable[Finding], eips: int = 1, few: int = 1) -> list[Finding]:
    """Like ``ranked``, but findings of one kind are merged as ``Group.told`` says."""
    return [each for group in groups(findings, eips) for each in group.told(few)]
