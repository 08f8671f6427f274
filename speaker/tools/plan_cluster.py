"""``speaker plan --cluster``: what the controller would decide if these manifests were applied to a live cluster.

It makes the controller's own decision (``controller/decider.py``) on what the API says now, and writes nothing there.
``read`` asks the API.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from speaker.api import kinds
from speaker.api.fields import ApiObject
from speaker.api.objects import Key, Object
from speaker.api.reading import read_slice
from speaker.cluster.access import Access, configure
from speaker.cluster.client import Client, listed
from speaker.controller.decider import ControllerSettings, Decider, News
from speaker.controller.wanted import IpMode
from speaker.errors import SettingError, as_edge_error
from speaker.model import ServiceKey, TrafficPolicy
from speaker.settings import DEFAULT_STATE, parse_balancers
from speaker.standalone.manifests import load, manifest_files, read_file
from speaker.system.waiting import boottime, time_of_day
from speaker.tools.agents import kubeconfig
from speaker.tools.plan import Changed, Planned, tell
from speaker.tools.validate import Fate, foreseen

NAMESPACED = frozenset(("Service", "EndpointSlice"))
_ALLOCATED = "ipFamilies", "ipFamilyPolicy"
"""Fields of a Service's spec that the API server sets if nobody does; nobody else changes them."""
_DUAL = frozenset(("PreferDualStack", "RequireDualStack"))
_FIRST = Key("default", "kubernetes")
"""The Service that every cluster has; its first family is the cluster's."""

ROUNDS = 3
"""How often the decision is repeated: what one reading frees may be given to a waiting Service by the next."""

_T = TypeVar("_T", bound=Object)


class Live(NamedTuple):
    """Objects of a cluster, as they are or would be."""

    services: Mapping[Key, kinds.ServiceObject] = {}
    eips: Mapping[Key, kinds.EipObject] = {}
    namespaces: Mapping[Key, Object] = {}
    nodes: Mapping[Key, kinds.HostObject] = {}
    slices: Mapping[Key, kinds.SliceObject] = {}


_SETTINGS = ControllerSettings()


def applied(live: Live, documents: Iterable[ApiObject], at: str) -> Live:
    """As after ``kubectl apply``: each document replaces the object with its name, and keeps what the API server and
    the controller wrote there. ``at``: RFC 3339. Raises EdgeError for an invalid object. Pure."""
    services, eips = dict(live.services), dict(live.eips)
    namespaces, slices = dict(live.namespaces), dict(live.slices)
    for document in documents:
        match document.kind:
            case "Service":
                policy = document.at("spec", "ipFamilyPolicy")
                _put(services, kinds.ServiceObject, document, at, partial(_allocated, live, policy=policy))
            case "Eip":
                _put(eips, kinds.EipObject, document, at)
            case "Namespace":
                _put(namespaces, Object, document, at)
            case "EndpointSlice":
                _put(slices, kinds.SliceObject, document, at)
    return live._replace(services=services, eips=eips, namespaces=namespaces, slices=slices)


def drained(live: Live, nodes: frozenset[str]) -> Live:
    """Without the pods of these nodes, before other pods have replaced them. Pure."""
    left = {
        key: msgspec.structs.replace(
            found, endpoints=tuple(each for each in found.endpoints or () if each.node_name not in nodes)
        )
        for key, found in live.slices.items()
    }
    return live._replace(slices=left)


def foresee(live: Live, then: Live, now: float, at: str, settings: ControllerSettings = _SETTINGS) -> Planned:
    """What a leading controller decides after the change, and what it decided before. Pure."""
    modes = {each.ip_mode for found in live.services.values() for each in found.status.load_balancer.ingress}
    ip_mode = IpMode.PROXY if IpMode.PROXY in modes else IpMode.VIP  # as the cluster knows it today
    decider = Decider(replace(settings, ip_mode=ip_mode))
    before = _decided(decider, News(live.services, live.eips, live.namespaces, live.nodes), live, now, at)
    news = News(
        _others(live.services, then.services),
        _others(live.eips, then.eips),
        _others(live.namespaces, then.namespaces),
    )
    after = _decided(decider, news, then, now, at)
    changed = (Changed(key, before.get(key), after.get(key)) for key in sorted(before.keys() | after.keys()))
    return Planned(tuple(each for each in changed if each.before != each.after), ())


def _decided(decider: Decider, news: News, live: Live, now: float, at: str) -> dict[ServiceKey, Fate]:
    for some in (news, *[News()] * ROUNDS):
        decider.decide(some, now, at)
    for error in decider.failed.values():
        raise error
    local = {key for key, found in live.services.items() if found.spec.external_traffic_policy == TrafficPolicy.LOCAL}
    nodes: dict[ServiceKey, set[str]] = {ServiceKey(key.namespace, key.name): set() for key in local}
    for found in live.slices.values():
        if (ready := nodes.get(found.service_key)) is not None:
            ready |= {each.node for each in read_slice(found)[0].endpoints if each.ready and each.node}
    return {
        key: Fate(outcome.assignment, outcome.refusal, tuple(sorted(nodes[key])) if key in nodes else None)
        for key, outcome in decider.decided().outcomes.items()
    }


def _others(before: Mapping[Key, _T], after: Mapping[Key, _T]) -> dict[Key, _T | None]:
    return {key: found for key, found in after.items() if before.get(key) != found}


def _put(
    into: dict[Key, _T],
    kind: type[_T],
    document: ApiObject,
    at: str,
    spec: Callable[[_T | None], Mapping[str, Any]] = lambda _: {},
) -> None:
    data = document.data if isinstance(document.data, dict) else {}
    metadata = data.get("metadata") or {}
    namespace = (metadata.get("namespace") or "default") if document.kind in NAMESPACED else ""
    key = Key(namespace, str(metadata.get("name")))
    found = into.get(key)
    known: dict[str, Any] = msgspec.to_builtins(found) if found is not None else {"metadata": {"creationTimestamp": at}}
    kept = known["metadata"]
    said = {name: {**kept.get(name, {}), **(metadata.get(name) or {})} for name in ("labels", "annotations")}
    made = {**data, "metadata": {**kept, "name": key.name, "namespace": namespace, **said}}
    if "spec" in data:
        made["spec"] = {**spec(found), **(data["spec"] or {})}
    if "status" in known:
        made["status"] = known["status"]
    with as_edge_error(document.subject, msgspec.ValidationError):
        into[key] = msgspec.convert(made, kind)


def _allocated(live: Live, found: kinds.ServiceObject | None, policy: object) -> Mapping[str, Any]:
    """What the API server has chosen for a Service, or would choose for a new one that does not say it."""
    if found is not None:
        known: dict[str, Any] = msgspec.to_builtins(found.spec)
        return {name: known[name] for name in _ALLOCATED if name in known}
    families = [*live.services[_FIRST].spec.ip_families[:1]] if _FIRST in live.services else []
    if policy in _DUAL:  # the cluster's own
        families += {other for each in live.services.values() for other in each.spec.ip_families} - {*families}
    return {"ipFamilies": families, "ipFamilyPolicy": "SingleStack"}


# ── The command ───────────────────────────────────────────────────────────────────────────────────────────────


async def read(access: Access) -> Live:
    """What the API says now. Raises SettingError, EdgeError."""
    async with Client(await configure(access)) as client:
        return Live(
            {each.key: each for each in await listed(client, kinds.SERVICES, kinds.ServiceObject)},
            {each.key: each for each in await listed(client, kinds.EIPS, kinds.EipObject)},
            {each.key: each for each in await listed(client, kinds.NAMESPACES, Object)},
            {each.key: each for each in await listed(client, kinds.NODES, kinds.HostObject)},
            {each.key: each for each in await listed(client, kinds.SLICES, kinds.SliceObject)},
        )


def command(args: argparse.Namespace) -> int:
    return tell(partial(_of_cluster, args), sys.stdout, sys.stderr, as_json=args.json)


def _of_cluster(args: argparse.Namespace) -> Planned:
    """Raises SettingError, InvalidManifests, EdgeError."""
    if args.then is not None:
        raise SettingError("--cluster: takes at most one directory: the cluster itself is NOW")
    if args.state != DEFAULT_STATE:
        raise SettingError("--state: not together with --cluster: the Services' status says which EIPs they have")
    live = asyncio.run(read(Access(kubeconfig(args.kubeconfig), args.context)))
    settings = ControllerSettings(args.default_class, parse_balancers(args.honour_annotations))
    return plan(live, args.now, frozenset(args.drain), settings)


def plan(live: Live, then: Path | None, drain: frozenset[str], settings: ControllerSettings = _SETTINGS) -> Planned:
    """``then`` None: only the pods of the nodes to ``drain`` go."""
    at = time_of_day()
    after = drained(applied(live, _documents(then) if then is not None else (), at), drain)
    with foreseen(then or Path()):
        return foresee(live, after, boottime(), at, settings)


def _documents(directory: Path) -> list[ApiObject]:
    """Raises InvalidManifests for every mistake in them, although an API server would store some of them."""
    load(directory)
    return [document for file in manifest_files(directory) for document in read_file(file)[0]]
