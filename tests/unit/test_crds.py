"""The files in manifests/base/crds are what the code says, and the schema is made of what the code reads with."""

from pathlib import Path

import pytest
import yaml
from crds import DIRECTORY, admission, definitions, files

from speaker.api.eip import MAX_BURST, SPEC, pool
from speaker.api.fields import ApiObject, read

HERE = Path(__file__).resolve().parents[2] / DIRECTORY


def schema(kind):
    (definition,) = (each for each in definitions().values() if each["spec"]["names"]["kind"] == kind)
    return definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]


def test_the_files_are_what_the_code_writes():
    on_disk = {path.name: path.read_text() for path in HERE.glob("*.yaml") if path.name != "kustomization.yaml"}
    assert on_disk == files(), "run `python manifests/crds.py`"


@pytest.mark.parametrize("name", files())
def test_what_is_written_reads_back_as_what_was_meant(name):
    assert yaml.safe_load(files()[name]) == (definitions() | admission())[name]


def test_the_schema_has_every_field_that_is_read():
    assert schema("Eip")["spec"]["properties"].keys() == SPEC


def test_a_pool_that_spells_the_schemas_defaults_out_is_the_pool_that_leaves_them_out():
    fields = schema("Eip")["spec"]["properties"]
    spelt = {name: field["default"] for name, field in fields.items() if "default" in field}
    assert len(spelt) == 4
    short = {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "metadata": {"name": "lan"}}
    spec = {"addresses": ["192.0.2.1"]}
    assert read(ApiObject({**short, "spec": {**spec, **spelt}}), pool) == read(ApiObject({**short, "spec": spec}), pool)


def test_an_announcements_status_has_the_fields_of_the_design():
    assert list(schema("Announcement")["status"]["properties"]) == [
        *("holder", "incarnation", "term", "link", "mac", "since", "services", "servicesText"),
        *("conflict", "reason", "takenFrom", "unansweredMilliseconds"),
    ]


def undescribed(schema, path):
    """Places that `kubectl explain` would have no text for. The API server describes metadata itself."""
    parts = {**schema.get("properties", {})}
    parts |= {f"{name}[]": schema[name] for name in ("items", "additionalProperties") if name in schema}
    for name, part in parts.items():
        if (path, name) == ("", "metadata"):
            continue
        if not part.get("description", "").endswith("."):
            yield f"{path}.{name}"
        yield from undescribed(part, f"{path}.{name}")


@pytest.mark.parametrize("kind", ["Eip", "Announcement"])
def test_every_level_is_explained(kind):
    assert [*undescribed({"properties": schema(kind)}, "")] == []


def test_all_that_is_ours_is_got_at_once_and_an_announcement_by_a_short_name():
    names = {each["spec"]["names"]["kind"]: each["spec"]["names"] for each in definitions().values()}
    assert [each["categories"] for each in names.values()] == [["eip-speaker"], ["eip-speaker"]]
    assert names["Announcement"]["shortNames"] == ["ann"]


def test_limits_are_those_of_the_code():
    gratuitous = schema("Eip")["spec"]["properties"]["gratuitous"]["properties"]
    assert gratuitous["burst"]["maximum"] == MAX_BURST
