"""The documented schemas (docs/mqtt/v1), as strict as this version of the speaker has to be: it says nothing that is
not in them."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

DIRECTORY = Path(__file__).parents[2] / "docs" / "mqtt" / "v1"
PLACES = {
    "eips": ("eip", 2),
    "pools": ("pool", 2),
    "controller": ("controller", 1),
    "events": ("event", 2),
}
"""The first level behind the version → the schema, and how many levels there are."""


def schema_of(topic: str, prefix: str = "eip-speaker") -> str:
    """The name of the schema that goes with a topic; ValueError for a topic that is not documented."""
    start = f"{prefix}/v1/"
    levels = topic.removeprefix(start).split("/")
    if not topic.startswith(start) or not all(levels):
        raise ValueError(topic)
    match levels:
        case ["nodes", _]:
            return "node"
        case ["nodes", _, "eips", _]:
            return "hold"
        case [first, *_] if first in PLACES and len(levels) == PLACES[first][1]:
            return PLACES[first][0]
    raise ValueError(topic)


@cache
def validator(name: str, *, strict: bool = True) -> Draft202012Validator:
    schema = json.loads((DIRECTORY / f"{name}.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(_strict(schema) if strict else schema, format_checker=FormatChecker())


def _strict(schema: dict[str, Any]) -> dict[str, Any]:
    """Nothing is in an object but what is listed."""
    return json.loads(json.dumps(schema), object_hook=_closed)


def _closed(found: dict[str, Any]) -> dict[str, Any]:
    listed = found.get("properties")
    # Only where properties are listed in full: not in conditions.
    if isinstance(listed, dict) and ("description" in found or "required" in found) and "if" not in listed:
        return {**found, "additionalProperties": False}
    return found


def mistakes(topic: str, payload: bytes | str, prefix: str = "eip-speaker") -> Iterator[str]:
    told = json.loads(payload)
    for error in validator(schema_of(topic, prefix)).iter_errors(told):
        yield f"{topic}: {error.message}"
