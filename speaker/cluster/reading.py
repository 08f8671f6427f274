"""Services and pools of the API → the nouns of ``speaker.model``, one object at a time: a bad one spoils no other."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from speaker.api import eip, service
from speaker.api.fields import ApiObject, read
from speaker.cluster.kinds import EipObject
from speaker.cluster.objects import Object
from speaker.errors import InvalidManifests
from speaker.model import Pool, Service


@dataclass(frozen=True, slots=True)
class Unreadable:
    """``message`` says what to mend. ``keep`` is the Service without what is wrong with it: it keeps what it holds by
    that, and is given nothing new; None where not even that can be read."""

    message: str
    keep: Service | None = None


Parsed: TypeAlias = Service | service.NotOurs | Unreadable


def read_service(found: Object, *, default_class: bool) -> Parsed:
    """``default_class``: Services without a ``loadBalancerClass`` are ours as well."""
    data = _plain(found, "Service", "v1")
    try:
        return _read(data, default_class)
    except InvalidManifests as error:
        return Unreadable("; ".join(map(str, error.problems)), _reduced(data, default_class))


def read_pool(found: EipObject) -> Pool | Unreadable:
    try:
        return read(ApiObject(_plain(found, "Eip", "eip-speaker.io/v1alpha1")), eip.pool)
    except InvalidManifests as error:
        return Unreadable("; ".join(map(str, error.problems)))


def _plain(found: Object, kind: str, version: str) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found))
    del data["status"]
    return {**data, "kind": kind, "apiVersion": version}


def _read(data: Mapping[str, Any], default_class: bool) -> Service | service.NotOurs:
    return read(ApiObject(data), lambda root: service.service(root, default_class=default_class))


def _reduced(data: Mapping[str, Any], default_class: bool) -> Service | None:
    """What the API server has validated, and the share annotations if they can be read: users write the rest freely."""
    for reduced in _reductions(data):
        try:
            found = _read(reduced, default_class)
        except InvalidManifests:
            continue
        return found if isinstance(found, Service) else None
    return None


_LEFT_OUT = frozenset({"loadBalancerIP", "loadBalancerSourceRanges", "sessionAffinity", "sessionAffinityConfig"})


def _reductions(data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    spec = {name: value for name, value in data["spec"].items() if name not in _LEFT_OUT}
    sharing = {
        name: value
        for name, value in data["metadata"].get("annotations", {}).items()
        if name in (service.SHARE, service.SHARE_NAMESPACES)
    }
    for annotations in (sharing, {}):
        yield {**data, "metadata": {**data["metadata"], "annotations": annotations}, "spec": spec}
