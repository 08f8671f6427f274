"""One of our pools while it is being made."""

from dataclasses import dataclass, field

from speaker.api.eip import pool
from speaker.api.fields import Path
from speaker.api.reading import EIP
from speaker.convert.document import Document, as_read
from speaker.convert.ranges import spelled
from speaker.convert.selectors import ALL, written
from speaker.model import AddressRange, LabelRule, LabelSelector, Pool

HOSTNAME = "kubernetes.io/hostname"


def of_host(name: str) -> LabelSelector:
    return LabelSelector((LabelRule(HOSTNAME, "In", frozenset({name})),))


@dataclass(slots=True)
class Draft:
    """``blocks``: what it offers. ``steps_over``: without IPv4 addresses that end in .0 or .255."""

    document: Document
    name: str
    blocks: list[AddressRange]
    labels: dict[str, str] = field(default_factory=dict)
    steps_over: bool = False
    namespaces: list[str] = field(default_factory=list)
    namespace_selector: LabelSelector = ALL
    service_selector: LabelSelector = ALL
    node_selector: LabelSelector = ALL
    node_preference: list[tuple[int, LabelSelector]] = field(default_factory=list)
    """Weights, each with the nodes it is for."""
    failback: str = ""
    interface: str = ""
    priority: int = 0
    auto_assign: bool = True
    disabled: bool = False
    gratuitous: dict[str, object] = field(default_factory=dict)
    called: str = ""
    """Its name at the peer, if that is none here."""
    path: Path = ("spec",)
    """Where the document describes the pool. If it describes several pools, they differ in this."""

    def leave_out(self, why: str, do: str) -> None:
        """Leaves out this pool alone."""
        self.document.leave(() if self.path == ("spec",) else self.path, why, do)

    def manifest(self) -> dict[str, object]:
        """Fields with their default value are left out, except the one whose default differs at the peers."""
        spec: dict[str, object] = {"addresses": spelled(self.blocks, self.steps_over)}
        optional: dict[str, object] = {
            "interface": self.interface,
            "nodeSelector": written(self.node_selector),
            "nodePreference": [{"weight": weight, **written(whose)} for weight, whose in self.node_preference],
            "failback": self.failback,
            "namespaces": sorted(self.namespaces),
            "namespaceSelector": written(self.namespace_selector),
            "serviceSelector": written(self.service_selector),
            "priority": self.priority,
            "gratuitous": self.gratuitous,
        }
        spec |= {name: value for name, value in optional.items() if value}
        if not self.auto_assign:
            spec["autoAssign"] = False
        if not self.steps_over:
            spec["avoidNetworkAndBroadcast"] = False
        if self.disabled:
            spec["disabled"] = True
        metadata = {"name": self.name, "labels": self.labels} if self.labels else {"name": self.name}
        return {"apiVersion": EIP[0], "kind": EIP[1], "metadata": metadata, "spec": spec}

    def pool(self) -> Pool | None:
        """The pool as the speaker reads it. If the speaker would refuse it, leaves it out and returns None."""
        return as_read(self.manifest(), pool, self.leave_out)


@dataclass(slots=True)
class Made:
    """Everything made of one peer's documents. ``elsewhere``: addresses of pools that are left out because nobody
    answers for them on the LAN."""

    drafts: list[Draft] = field(default_factory=list)
    elsewhere: list[AddressRange] = field(default_factory=list)

    def leave_elsewhere(self, draft: Draft, why: str, do: str) -> None:
        self.elsewhere += draft.blocks
        draft.leave_out(why, do)
