"""Services and pools of the API → the nouns of ``speaker.model``, one object at a time: a bad one spoils no other."""

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec

from speaker.api import eip, service
from speaker.api.fields import ApiObject, read, read_leniently
from speaker.cluster.kinds import EipObject
from speaker.cluster.objects import Object
from speaker.errors import InvalidField, InvalidManifests
from speaker.model import Pool, Service


@dataclass(frozen=True, slots=True)
class Unreadable:
    """``message`` says what to mend. ``keep`` is the Service with what can be read, which is never more than what was
    meant: it keeps what it holds, and is given nothing new; None where not even its name can be read, or its class."""

    message: str
    keep: Service | None = None


Parsed: TypeAlias = Service | service.NotOurs | Unreadable

SHOWN = 10
"""Problems of one object that are named; the count tells the rest."""


def read_service(found: Object, *, default_class: bool, fields_alone: bool = False) -> Parsed:
    """``default_class``: Services without a ``loadBalancerClass`` are ours as well; ``fields_alone`` as in
    ``service.service``."""
    data = ApiObject(_plain(found, "Service", "v1"))
    parsed, problems = read_leniently(
        data,
        lambda root: service.service(root, default_class=default_class, families_told=True, fields_alone=fields_alone),
    )
    if not problems:
        return parsed
    if not isinstance(parsed, Service) or (parsed.key.namespace, parsed.key.name) != (
        found.key.namespace,
        found.key.name,
    ):
        return Unreadable(_listed(problems))
    # Without its wishes: by them it would be given something new.
    return Unreadable(_listed(problems), replace(parsed, addresses=(), pool=None))


def read_pool(found: EipObject) -> Pool | Unreadable:
    try:
        return read(ApiObject(_plain(found, "Eip", "eip-speaker.io/v1alpha1")), eip.pool)
    except InvalidManifests as error:
        return Unreadable(_listed(error.problems))


def _plain(found: Object, kind: str, version: str) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found))
    del data["status"]
    return {**data, "kind": kind, "apiVersion": version}


def _listed(problems: tuple[InvalidField, ...]) -> str:
    more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
    return "; ".join(map(str, problems[:SHOWN])) + more
