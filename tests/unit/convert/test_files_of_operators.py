"""Files as operators have them: no pool is lost, nothing is wider, and every line is accounted for."""

import io
import json
import re
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from conversions import converted

from speaker.convert.ranges import joined, less, parse_block
from speaker.tools.validate import validate

TABLE = re.split(r"\n# (?=[a-z-]+: )", (Path(__file__).parent / "operators.txt").read_text())[1:]
SHAPES = {title: rest for title, _, rest in (each.partition("\n") for each in TABLE)}


def manifest_of(title):
    return "\n".join(line for line in SHAPES[title].splitlines() if not line.startswith("=> "))


def expected(title):
    pools, left, services = {}, [], {}
    for line in re.findall("^=> (.+)", SHAPES[title], re.MULTILINE):
        word, _, rest = line.partition(" ")
        if word == "left:":
            left = rest.split(", ")
        elif word == "services:":
            services = {name: addresses for name, _, addresses in (each.partition(" ") for each in rest.split(", "))}
        else:
            pools[word] = joined(map(parse_block, rest.split()))
    return pools, left, services


def peer_of(title):
    return title.partition(":")[0]


def as_converted(title):
    return converted(manifest_of(title))


def addresses_of(pool):
    return joined(map(parse_block, pool["spec"]["addresses"]))


def written_in(text):
    """Every range, CIDR and address that stands anywhere in the text, by no reader of ours."""
    address = r"[0-9a-fA-F:.]*[.:][0-9a-fA-F:.]*[0-9a-fA-F:]"
    for first, _, last in re.findall(rf"({address})(\s?-\s?)({address})", text):
        yield parse_block(f"{first}-{last}")
    for found in re.findall(rf"{address}/\d+", text):
        try:
            yield parse_block(str(ip_network(found, strict=False)))
        except ValueError:
            continue
    for found in re.findall(address, text):
        try:
            yield parse_block(str(ip_address(found)))
        except ValueError:
            continue
    for start, stop in re.findall(rf'start: "?({address})"?\s*\n?\s*stop: "?({address})', text):
        yield parse_block(f"{start}-{stop}")


def test_there_are_forty_shapes_and_more_of_five_balancers():
    assert len(SHAPES) >= 40
    assert {*map(peer_of, SHAPES)} == {"metallb", "cilium", "kube-vip", "purelb", "openelb"}
    assert all(line.startswith("=> ") for each in SHAPES.values() for line in each.strip().splitlines()[-1:])


@pytest.mark.parametrize("title", SHAPES)
def test_no_pool_is_lost(title):
    pools, left, _ = expected(title)
    found = as_converted(title)
    came = {each["metadata"]["name"]: addresses_of(each) for each in found.pools}
    assert came.keys() == pools.keys()
    assert [less(pools[name], came[name]) + less(came[name], pools[name]) for name in came] == [[]] * len(came)
    reasons = [f"{each.subject} {each.path} {each.value}" for each in found.decisions]
    assert all(any(name in reason for reason in reasons) for name in left)


@pytest.mark.parametrize("title", SHAPES)
def test_no_address_is_outside_of_what_was_written(title):
    original = [*written_in(manifest_of(title))]
    for pool in as_converted(title).pools:
        assert less(addresses_of(pool), original) == []


@pytest.mark.parametrize("title", SHAPES)
def test_every_line_is_converted_or_listed_with_a_reason(title):
    found = as_converted(title)
    assert [[*document.unaccounted()] for document in found.documents] == [[]] * len(found.documents)
    assert all(each.why and each.place.line for each in found.listed)


@pytest.mark.parametrize("title", SHAPES)
def test_services_ask_for_what_they_asked_their_balancer(title):
    services = expected(title)[2]
    asked = {
        each["metadata"]["name"]: each["metadata"].get("annotations", {}).get("eip-speaker.io/addresses", "")
        for each in as_converted(title).services
    }
    assert asked == services


@pytest.mark.parametrize("title", SHAPES)
def test_what_comes_out_is_valid_and_gives_each_service_its_address(title, tmp_path):
    found = as_converted(title)
    objects = [*found.pools, *found.services]
    (tmp_path / "out.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    out = io.StringIO()
    code = validate(tmp_path, out, as_json=True)
    told = json.loads(out.getvalue())
    assert (code, told["problems"]) == (0, [])
    given = {key.partition("/")[2]: ",".join(fate["addresses"]) for key, fate in told["services"].items()}
    assert all(given[name] == address for name, address in expected(title)[2].items() if address)


@pytest.mark.parametrize("title", SHAPES)
def test_validate_names_whose_they_are(title, tmp_path):
    (tmp_path / "in.yaml").write_text(manifest_of(title))
    out = io.StringIO()
    validate(tmp_path, out, as_json=True)
    sentences = [each["sentence"] for each in json.loads(out.getvalue())["notices"]]
    assert any("`speaker convert` translates it" in each for each in sentences)
