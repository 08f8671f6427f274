"""``status.json``, for scripts and people on the node: the same facts as the log, all at once."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from speaker.allocator.settle import Settlement
from speaker.checks import Finding
from speaker.forwarding.handing_over import NextHop
from speaker.forwarding.limits import Tables
from speaker.kubeproxy.judge import Judgement
from speaker.model import Family, IPAddress, Usage, format_mac
from speaker.node.decide import Decision, MayHold, MayNotHold
from speaker.system.files import write_atomically
from speaker.system.process import Priority
from speaker.wire.messages import ClaimStatus

NAME = "status.json"
"""The file's name in the runtime directory."""

Shown: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Mapping[Family, Usage]], Mapping[str, str]], None]
"""Gets what the file says, in a thread; the usage of pools; and the conflicts, by EIP."""


@dataclass(slots=True)
class Status:
    """What was last seen of this host; None: nobody has looked yet."""

    priority: Priority | None = None
    """Of the wire process."""
    kube_proxy: Judgement | None = None
    handed_over: Counter[NextHop] = field(default_factory=Counter)
    """Previous holder → for how many EIPs it gets the packets of connections unknown here."""
    assisting: Mapping[str, float] = field(default_factory=dict)
    """Dead node → since when kube-proxy's clients bypass its endpoints, in seconds since 1970."""
    tables: Tables = field(default_factory=Tables)
    waits: Mapping[str, str] = field(default_factory=dict)
    """EIP → the holder that this node waits for while it holds the EIP only in name."""

    def told(
        self,
        settlement: Settlement,
        decision: Decision,
        claim_statuses: Mapping[IPAddress, ClaimStatus],
        problems: Collection[Finding],
    ) -> dict[str, Any]:
        """Describes what is in force. ``claim_statuses``: of each EIP in ``decision``."""
        return {
            "eips": [
                _eip(eip, claim_statuses[address]) | self._waiting(address) for address, eip in decision.eips.items()
            ],
            "refused": [
                {"service": str(key), "reason": refusal.reason.value, "message": refusal.message}
                for key, refusal in settlement.refusals.items()
            ],
            "problems": [each.sentence for each in problems],
            "findings": [
                {"name": each.kind, "severity": each.severity, "eips": each.concerns(len(decision.eips))}
                for each in problems
            ],
            "wire_priority": self.priority.value if self.priority is not None else None,
            "kube_proxy": _kube_proxy(self.kube_proxy),
            "handed_over": [
                {"address": str(hop.address), "link": hop.link, "eips": count}
                for hop, count in self.handed_over.items()
            ],
            "assisting": [{"node": node, "since": since} for node, since in self.assisting.items()],
            "tables": {
                name: {"connections": use.connections, "size": use.size}
                for name, use in (("conntrack", self.tables.conntrack), ("ipvs", self.tables.ipvs))
                if use is not None
            },
        }

    def _waiting(self, address: IPAddress) -> dict[str, str]:
        return {"message": sentence} if (sentence := self.waits.get(str(address))) else {}


def _eip(eip: MayHold | MayNotHold, status: ClaimStatus) -> dict[str, Any]:
    told: dict[str, Any] = {
        "address": str(eip.address),
        "services": [str(key) for key in eip.services],
        "pool": eip.pool,
        "claimed": status.mine,
        "holder": status.holder,
        "term": status.term,
    }
    if status.elsewhere is not None:
        told["preferred"] = status.elsewhere
    if status.holder is not None and status.preferred is not None and status.preferred.node is not None:
        told["weights"] = {status.holder: status.preferred.holders, status.preferred.node: status.preferred.weight}
    if status.since is not None:
        told["since"] = status.since
    match eip:
        case MayHold(link=link):
            return told | {"link": link.name, "mac": format_mac(link.mac)}
        case MayNotHold(reason=reason, message=message):
            return told | {"reason": reason, "message": message}


def _kube_proxy(seen: Judgement | None) -> dict[str, Any] | None:
    if seen is None:
        return None
    found = seen.kube_proxy
    return {"mode": found.mode.value, "evidence": found.evidence, "notes": seen.notes}


def write_status(runtime_dir: Path, told: Mapping[str, Any]) -> None:
    """Edge. Raises EdgeError, which names the file."""
    write_atomically(runtime_dir / NAME, msgspec.json.encode(told))
