"""Nothing is dropped in silence: each value is listed, or it makes a difference to what is written."""

from copy import deepcopy

import pytest
import yaml
from conversions import NAMES, converted, of_data, text_of

from speaker.convert.document import leaves


def others(value):
    match value:
        case bool():
            return [not value]
        case int() | float():
            return [value + 1, 0]
        case str():
            return [f"{value}9"]
        case _:
            return ["something"]


def put(documents, i, path, value):
    changed = deepcopy(documents)
    at(changed[i], path[:-1])[path[-1]] = value
    return changed


def outcome(*documents):
    found = of_data(*documents, adopt=True)
    return (
        found.pools,
        found.services,
        [(each.subject, each.path, each.value, each.why, each.do) for each in found.listed],
    )


def at(data, path):
    for step in path:
        data = data[step]
    return data


@pytest.mark.parametrize("name", NAMES)
def test_each_value_is_converted_or_listed(name):
    for adopt in (False, True):
        for document in converted(text_of(name), adopt=adopt).documents:
            assert list(document.unaccounted()) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_value_that_is_not_listed_makes_a_difference(name):
    documents = list(yaml.safe_load_all(text_of(name)))
    before = outcome(*documents)
    conversion = of_data(*documents, adopt=True)
    tried = 0
    for i, document in enumerate(documents):
        for path in leaves(document):
            if conversion.documents[i].is_listed(path):
                continue
            changed = [put(documents, i, path, value) for value in others(at(document, path))]
            assert any(outcome(*each) != before for each in changed), (document["metadata"]["name"], path)
            tried += 1
    assert tried or not conversion.pools


@pytest.mark.parametrize("name", NAMES)
def test_a_field_that_the_peer_does_not_have_is_listed_and_leaves_a_pool_out(name):
    documents = list(yaml.safe_load_all(text_of(name)))
    for i, document in enumerate(documents):
        for where in ("spec", "metadata"):
            if document["kind"] in ("Service", "Deployment") or where not in document:
                continue
            changed = deepcopy(documents)
            changed[i][where]["narrower"] = "yes"
            found = of_data(*changed).documents[i]
            assert found.refused, (document["kind"], where)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_names_every_listed_value_with_a_reason(name):
    for each in converted(text_of(name)).listed:
        assert all((each.subject, each.place.line, each.why)), each
        assert each.place.file == "input.yaml"
