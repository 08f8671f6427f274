"""What ``speaker.api`` reads and what the CRD lets through are the same, as a real API server judges; where they cannot
be, the table says so."""

import copy
import itertools
import json
import time

import msgspec
import pytest
from asking import Asking, refusals
from crds import DIRECTORY, definitions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real_api import PATIENCE

from speaker.agent.record import Facts, correction
from speaker.allocator.assign import Usage
from speaker.api.addresses import parse_range
from speaker.api.eip import pool
from speaker.api.fields import ApiObject, read
from speaker.api.kinds import EipObject
from speaker.api.objects import Metadata
from speaker.api.reading import judge
from speaker.api.records import AnnouncementObject
from speaker.controller.wanted import pool_writes
from speaker.errors import InvalidManifests
from speaker.model import Family

pytestmark = pytest.mark.apiserver

EIPS = "/apis/eip-speaker.io/v1alpha1/eips"
ANNOUNCEMENTS = "/apis/eip-speaker.io/v1alpha1/announcements"
ONLY_JUDGED = "?dryRun=All&fieldValidation=Strict"


@pytest.fixture(scope="session")
def ask(api_server, request):
    """As the administrator, with the CRDs there."""
    directory = request.config.rootpath / DIRECTORY
    api_server.kubectl("apply", "-k", str(directory))
    names = ("crd/eips.eip-speaker.io", "crd/announcements.eip-speaker.io")
    api_server.kubectl("wait", "--for=condition=Established", "--timeout=180s", *names)
    asking = Asking(api_server)
    # A policy is in force some time after it was made.
    until(lambda: asking("POST", EIPS + ONLY_JUDGED, eip(colour="red"))[0] == 422)
    return asking


def eip(**spec):
    spec = {"addresses": ["192.0.2.1"], **spec}
    return {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "metadata": {"name": "judged"}, "spec": spec}


def reads(body):
    try:
        read(ApiObject(body), pool)
    except InvalidManifests:
        return False
    return True


def entry(**more):
    return {"matchExpressions": [more]}


GOOD = [
    *({"addresses": [text]} for text in (
        "192.0.2.1", " 192.0.2.1 ", "192.0.2.1-192.0.2.9", "192.0.2.1 - 192.0.2.9", "192.0.2.1-192.0.2.1",
        "192.0.2.0/24", "192.0.2.1/32", "192.0.2.0/255.255.255.0", "192.0.2.0 / 255.255.255.128",
        "192.0.2.4/255.255.255.252", "192.0.2.1/255.255.255.255", "169.254.1.0/24", "240.0.0.0/5",
        "255.255.255.0-255.255.255.254", "2001:db8::", "2001:DB8::1", "2001:db8::/64", "2001:db8::1-2001:db8::ff",
        "64:ff9b::192.0.2.1", "fd00::/8", "::2", "126.255.255.255", "128.0.0.0/2",
        "1.0.0.0", "223.255.255.255", "0:0:0:0:0:0:0:5",
    )),
    {"addresses": ["192.0.2.0/28", "2001:db8::/120"], "exclude": ["192.0.2.3", "2001:db8::5-2001:db8::7"]},
    *({"interface": text} for text in (
        "eth0", "eth1,eth0", "can_reach:192.0.2.1", "can_reach:2001:db8::1", "bond0.100", "a" * 15, "lo0", "...",
        "vrf-blue", "enp0s3@x", "größe",
    )),
    {"nodeSelector": {"matchLabels": {"kubernetes.io/os": "linux", "rack": "", "a_b.C": "x_y.Z"}}},
    {"serviceSelector": entry(key="tier", operator="In", values=["a", "b"])},
    {"namespaceSelector": entry(key="tier", operator="Exists")},
    {"namespaceSelector": entry(key="tier", operator="DoesNotExist", values=[])},
    {"namespaceSelectors": [entry(key="tier", operator="Exists"), {"matchLabels": {"team": "a"}}]},
    {"serviceSelectors": [{"matchLabels": {"team": each}} for each in "abcdefghijklmnop"]},
    {"serviceSelector": {"matchLabels": {"a": "b"}}, "namespaceSelectors": [{"matchLabels": {"a": "b"}}]},
    {"perNamespace": {"max": 1}},
    {"namespaces": ["shop", "a"]},
    *({"priority": number} for number in (-(2**31), 0, 2**31 - 1)),
    {"autoAssign": False, "avoidNetworkAndBroadcast": False, "disabled": True},
    {"autoAssign": None, "priority": None, "interface": None},
    {"nodePreference": [{"weight": 1, "matchLabels": {"a": "b"}}, {"weight": 99, **entry(key="z", operator="Exists")}]},
    {"nodePreference": 16 * [{"weight": 5, "matchLabels": {"a": ""}, **entry(key="z", operator="In", values=["a"])}]},
    *({"failback": text} for text in ("never", "preferred-after 1s", "preferred-after 24h", "preferred-after 1h30m")),
    {"gratuitous": {}},
    {"gratuitous": {"burst": 50, "interval": "50ms", "refresh": "24h"}},
    {"gratuitous": {"burst": 1, "interval": 60, "refresh": 0}},
    {"gratuitous": {"interval": "1.1s", "refresh": "0s"}},
    {"gratuitous": {"interval": "0.5m30s", "refresh": "1h30m"}},
]  # fmt: skip

BAD = [
    *({"addresses": [text]} for text in (
        "", "eth0", "192.0.2", "192.0.2.256", "192.0.2.01", "192.0.2.1-", "-192.0.2.1", "192.0.2.1-9",
        "192.0.2.9-192.0.2.1", "192.0.2.0/24-192.0.3.0/24", "192.0.2.1-2001:db8::1", "192.0.2.1/24", "192.0.2.0/33",
        "192.0.2.0/", "192.0.2.0/-1", "192.0.2.0/+24", "192.0.2.0/24/24", "192.0.2.1/255.255.255.0",
        "192.0.2.0/255.0.255.0", "192.0.2.0/0.0.0.255", "192.0.2.0/255.255.255.1", "2001:db8::/129",
        "2001:db8::1/64", "2001:db8::/255.255.255.0", "2001:db8::/ffff::", "fe80::1%eth0", "2001:db8:::1", "1 92.0.2.1",
        "0.0.0.0", "0.0.0.0/0", "0.0.0.0/0.0.0.0", "127.0.0.1", "126.0.0.0-128.0.0.0", "112.0.0.0/240.0.0.0",
        "224.0.0.1", "255.255.255.255", "240.0.0.0/4", "255.255.255.254-255.255.255.255", "::", "::1", "::/0",
        "fe80::1", "fe80::/9", "ff02::1", "fe80::1-fe80::2", "ff00::-ff00::1", "::ffff:192.0.2.1", "::ffff:c000:201",
        "2001:db8::1-ff02::1", "192.0.2.0/24 x", "٣.0.2.1",
    )),
    {"addresses": []},
    {"addresses": None},
    {"addresses": "192.0.2.1"},
    {"addresses": [1]},
    {"exclude": ["nothing"]},
    *({"interface": text} for text in (
        "", "eth0,", ",", "eth0, eth1", "lo", "eth0,lo", "eth0,eth0", ".", "eth0,..", "a/b", "a" * 16, "can_reach:",
        "can_reach:eth0", "can_reach:fe80::1", "can_reach:127.0.0.1", "can_reach:192.0.2.1%eth0", "can-reach:192.0.2.1",
        "can_reach: 192.0.2.1", "can_reach:224.0.0.5", "can_reach:0.0.0.0", "eth\u00a00", "eth\u000b0",
    )),
    {"nodeSelector": {"matchLabels": {"-a": "b"}}},
    {"nodeSelector": {"matchLabels": {"a": "-b"}}},
    {"nodeSelector": {"matchLabels": {"a": "b" * 64}}},
    {"nodeSelector": {"matchLabels": {"a" * 64: "b"}}},
    {"nodeSelector": {"matchLabels": {"UPPER.example/a": "b"}}},
    {"nodeSelector": {"matchLabels": {"a/b/c": "b"}}},
    {"nodeSelector": {"matchLabels": {"a." * 127 + "a/b": "b"}}},
    {"nodeSelector": {"rack": "b"}},
    {"namespaceSelector": {"matchLabels": {"-a": "b"}}},
    {"serviceSelector": {"matchLabels": {"-a": "b"}}},
    {"serviceSelector": entry(key="tier", operator="In")},
    {"serviceSelector": entry(key="tier", operator="NotIn", values=[])},
    {"serviceSelector": entry(key="tier", operator="Exists", values=["a"])},
    {"serviceSelector": entry(key="tier", operator="in", values=["a"])},
    {"serviceSelector": entry(key="-tier", operator="Exists")},
    {"serviceSelector": entry(operator="Exists")},
    {"serviceSelector": entry(key="tier")},
    *({name: empty} for name in ("nodeSelector", "namespaceSelector", "serviceSelector") for empty in (
        {}, {"matchLabels": {}}, {"matchExpressions": []}, {"matchLabels": None}, {"matchLabels": {"team": None}},
        {"matchLabels": {"team": None, "tier": "a"}}, {"matchLabels": {}, **entry(key="tier", operator="Exists")},
        {"matchExpressions": [None]}, entry(key="tier", operator="In", values=[None]),
        entry(key="tier", operator="NotIn", values=None),
    )),
    {"serviceSelector": {"matchLabels": {"a": "b"}}, "serviceSelectors": [{"matchLabels": {"a": "b"}}]},
    {"namespaceSelector": {"matchLabels": {"a": "b"}}, "namespaceSelectors": [{"matchLabels": {"a": "b"}}]},
    *({f"{name}s": several} for name in ("namespaceSelector", "serviceSelector") for several in (
        [], [{}], [None], [{"matchLabels": {"a": "b"}}] * 17, {"matchLabels": {"a": "b"}},
    )),
    *({"perNamespace": value} for value in (
        {}, {"max": 0}, {"max": "1"}, {"max": None}, {"max": 2**31}, {"maximum": 1}, 1,
    )),
    {"namespaces": [None]},
    {"addresses": [None]},
    {"exclude": [None]},
    {"namespaces": []},
    {"namespaces": ["Shop"]},
    {"namespaces": ["a.b"]},
    {"namespaces": ["a" * 64]},
    {"priority": 2**31},
    {"priority": -(2**31) - 1},
    {"priority": "1"},
    {"autoAssign": "true"},
    {"disabled": 1},
    {"colour": "red"},
    *({"nodePreference": terms} for terms in (
        [], [None], [{}], {}, [{"weight": 5}], [{"matchLabels": {"a": "b"}}],
        [{"weight": 0, "matchLabels": {"a": "b"}}],
        [{"weight": 101, "matchLabels": {"a": "b"}}], [{"weight": "5", "matchLabels": {"a": "b"}}],
        [{"weight": 5, "matchLabels": {}}], [{"weight": 5, "matchExpressions": []}],
        [{"weight": 5, "preference": {"matchLabels": {"a": "b"}}}], [{"weight": 5, "matchLabels": {"a": None}}],
        17 * [{"weight": 5, "matchLabels": {"a": "b"}}],
    )),
    *({"failback": text} for text in (
        "", "always", "Never", "preferred-after", "preferred-after ", "preferred-after 5", "preferred-after 0s",
        "preferred-after 999ms", "preferred-after 25h", "preferred-after 1d", "preferred-after 999999999h", "5m", 5,
        "preferred-after -5m",
    )),
    {"gratuitous": {"burst": 0}},
    {"gratuitous": {"burst": 51}},
    {"gratuitous": {"interval": "49ms"}},
    {"gratuitous": {"interval": 0}},
    {"gratuitous": {"interval": 61}},
    {"gratuitous": {"interval": "1.1"}},
    {"gratuitous": {"interval": "-1s"}},
    {"gratuitous": {"interval": "1s "}},
    {"gratuitous": {"interval": "1µs"}},
    {"gratuitous": {"refresh": "999ms"}},
    {"gratuitous": {"refresh": 86401}},
    {"gratuitous": {"refresh": "25h"}},
    {"gratuitous": {"refresh": "often"}},
    {"gratuitous": {"refresh": "1d"}},
    {"gratuitous": {"refresh": "2"}},
    {"gratuitous": {"refresh": "5us"}},
    {"gratuitous": {"refresh": "999999999h"}},
    {"gratuitous": {"times": 3}},
]  # fmt: skip

ONLY_THE_SCHEMA_TAKES = [
    pytest.param({"addresses": ["2001:db8::2-2001:db8::1"]}, id="CEL knows no order of IPv6 addresses"),
    pytest.param({"addresses": ["2001:db8::1-fec0::1"]}, id="nor whether a range lies around a block"),
    pytest.param({"addresses": ["::fffe:0:0/95"]}, id="nor IPv4-mapped addresses"),
    pytest.param({"addresses": ["192.0.2.1", "192.0.2.0/24"]}, id="overlaps are a condition"),
    pytest.param({"exclude": ["192.0.2.200"]}, id="an exclusion that excludes nothing is a condition"),
    pytest.param({"interface": "ü" * 8}, id="a link's name is counted in characters, not bytes"),
    *(
        pytest.param({name: None}, id=f"no value for {name} is the same as no {name} to an API server")
        for name in ("nodeSelector", "namespaceSelector", "serviceSelector", "namespaces", "exclude")
    ),
    pytest.param(
        {"nodeSelector": {"matchLabels": None, **entry(key="tier", operator="Exists")}},
        id="nor can one half of a selector be told from none",
    ),
]

ONLY_FILES_MAY = [
    pytest.param({"addresses": ["192.0.2.0/024"]}, id="leading zeros in a prefix length"),
    pytest.param({"gratuitous": {"interval": 1.5}}, id="decimal numbers are text: 1.5s"),
    pytest.param({"addresses": [f"10.0.{i >> 8}.{i & 255}" for i in range(257)]}, id="more than 256 entries"),
    pytest.param({"interface": ",".join(f"link{i:011}" for i in range(13))}, id="more than 12 long names"),
]


@pytest.mark.parametrize("spec", GOOD, ids=str)
def test_both_take_what_is_right(ask, spec):
    code, answer = ask("POST", EIPS + ONLY_JUDGED, eip(**spec))
    assert (code, reads(eip(**spec))) == (201, True), refusals(answer) or answer


@pytest.mark.parametrize("spec", BAD, ids=str)
def test_both_refuse_what_is_wrong(ask, spec):
    code, answer = ask("POST", EIPS + ONLY_JUDGED, eip(**spec))
    assert code in (400, 422), "the schema takes it"
    assert not reads(eip(**spec))
    said = str(refusals(answer) or answer["message"])
    assert "failed rule" not in said  # what stands for a rule's message where it has none


@pytest.mark.parametrize("spec", ONLY_THE_SCHEMA_TAKES)
def test_what_only_the_code_can_refuse(ask, spec):
    code, answer = ask("POST", EIPS + ONLY_JUDGED, eip(**spec))
    assert (code, reads(eip(**spec))) == (201, False), answer


@pytest.mark.parametrize("spec", ONLY_FILES_MAY)
def test_what_only_files_may_say(ask, spec):
    code, answer = ask("POST", EIPS + ONLY_JUDGED, eip(**spec))
    assert (code in (400, 422), reads(eip(**spec))) == (True, True), answer


def test_a_mistake_is_told_once_and_with_the_rule(ask):
    wrong = ["192.0.2.9-192.0.2.1", "192.0.2.1/24", "127.0.0.1", "192.0.2.1-2001:db8::1", "eth0", "fe80::1%eth0"]
    _, answer = ask("POST", EIPS + ONLY_JUDGED, eip(addresses=wrong))
    found = refusals(answer)
    assert [len(found[f"spec.addresses[{i}]"]) for i in range(len(wrong))] == [1] * len(wrong), found
    assert "must not come after the last" in found["spec.addresses[0]"][0]
    assert "bits set behind its prefix length" in found["spec.addresses[1]"][0]
    assert "cannot be an EIP" in found["spec.addresses[2]"][0]
    assert "same IP family" in found["spec.addresses[3]"][0]
    assert "must be a single address" in found["spec.addresses[4]"][0]
    assert "no scope id" in found["spec.addresses[5]"][0]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("adresses", "addresses"),
        ("adddresses", "addresses"),
        ("Interface", "interface"),
        ("interfaces", "interface"),
        ("node_selector", "nodeSelector"),
        ("nodeselektor", "nodeSelector"),
        ("autoasign", "autoAssign"),
        ("exclud", "exclude"),
        ("namespaceSel", "namespaceSelector"),
    ],
)
def test_a_field_that_is_misspelt_is_refused_with_the_one_that_was_meant(ask, word, meant):
    code, answer = ask("POST", EIPS + "?dryRun=All", eip(**{word: "x"}))
    assert code == 422
    assert answer["message"].endswith(f"spec.{word} is not a field of an Eip: did you mean {meant}?")


def test_a_field_like_no_other_is_refused_with_all_that_there_are(ask):
    _, answer = ask("POST", EIPS + "?dryRun=All", eip(**{"x" * 5000: 1, "colour": None, "": {}}))
    assert ": known are addresses, exclude, " in answer["message"]
    assert len(answer["message"]) < 2000


def test_a_pool_from_before_that_policy_can_still_be_written(ask, api_server):
    """But for a change of its spec: the misspelt field has to go first."""
    name, policy = "from-before", "validatingadmissionpolicybinding/eip-speaker-pool-fields"
    body = {**eip(colour="red"), "metadata": {"name": name}}
    api_server.kubectl("delete", policy)
    until(lambda: ask("POST", EIPS, body)[0] == 201)
    api_server.kubectl("apply", "-k", str(DIRECTORY))
    until(lambda: ask("POST", EIPS + ONLY_JUDGED, eip(colour="red"))[0] == 422)
    assert ask("PATCH", f"{EIPS}/{name}", {"metadata": {"finalizers": ["example.com/mine"]}})[0] == 200
    assert ask("PATCH", f"{EIPS}/{name}", {"spec": {"priority": 5}})[0] == 422
    assert ask("PATCH", f"{EIPS}/{name}", {"spec": {"priority": 5, "colour": None}})[0] == 200
    assert ask("PATCH", f"{EIPS}/{name}", {"metadata": {"finalizers": None}})[0] == 200
    ask("DELETE", f"{EIPS}/{name}")


@pytest.fixture
def pool_there(ask):
    body = {
        **eip(addresses=["192.0.2.1", "2001:db8::/120"]),
        "metadata": {"name": "seen", "labels": {"addresses": "x", "status": "x", "spec": "y"}},
    }
    assert ask("POST", EIPS, body)[0] == 201
    yield
    ask("DELETE", f"{EIPS}/seen")


def row(api_server):
    head, *lines = api_server.kubectl("get", "eip").splitlines()
    assert head.split() == ["NAME", "ADDRESSES", "USED", "FREE", "READY", "AGE"]
    (line,) = (each for each in lines if each.startswith("seen "))
    return [line[head.index(title) :].partition("   ")[0].strip() for title in head.split()]


def test_a_pool_without_a_controller_shows_its_addresses_and_that_nobody_has_looked(ask, api_server, pool_there):
    assert row(api_server)[:5] == ["seen", '["192.0.2.1","2001:db8::/120"]', "", "", "Unknown"]


def test_a_pool_with_a_controller_shows_what_is_used_and_free_of_each_family(ask, api_server, pool_there):
    found = msgspec.convert(ask("GET", f"{EIPS}/seen")[1], EipObject)
    usage = {Family.IPV4: Usage(1, 1, 0), Family.IPV6: Usage(254, 3, 0)}
    (write,) = pool_writes(found, judge([found])["seen"], (), usage, "2026-11-21T16:00:00Z", in_use=False)
    assert ask("PATCH", write.path, write.body())[0] == 200
    assert row(api_server)[:5] == ["seen", "192.0.2.1,2001:db8::/120", "1 IPv4, 3 IPv6", "0 IPv4, 251 IPv6", "True"]


def test_the_largest_pool_is_within_the_cost_that_the_api_server_allows(ask):
    long = [f"{'2001:0db8:0000:0000:0000:0000:0000:':s}{2 * i:04x} - 2001:0db8::{2 * i + 1:x}" for i in range(256)]
    masked = [f"10.{i}.255.0 / 255.255.255.0" for i in range(256)]
    code, answer = ask("POST", EIPS + ONLY_JUDGED, eip(addresses=long, exclude=masked))
    assert code == 201, answer


# ── Anything ──

ipv4s = st.one_of(
    st.ip_addresses(v=4).map(str),
    st.sampled_from(["0.255.255.255", "1.0.0.0", "126.255.255.255", "128.0.0.0", "223.255.255.255", "240.0.0.0",
                     "255.255.255.254", "192.0.2.0", "10.0.0.0"]),
)  # fmt: skip
ipv6s = st.one_of(st.ip_addresses(v=6).map(str), st.sampled_from(["2001:db8::", "fd00::", "fe7f::", "fec0::", "::2"]))
masks = st.integers(0, 32).map(lambda n: ".".join(str((2**32 - 2 ** (32 - n)) >> s & 255) for s in (24, 16, 8, 0)))
texts = st.one_of(
    ipv4s,
    ipv6s,
    st.tuples(ipv4s, ipv4s).map("-".join),
    st.tuples(ipv6s, ipv4s).map("-".join),
    st.tuples(ipv4s, st.integers(0, 33).map(str) | masks | ipv4s).map("/".join),
    st.tuples(ipv6s, st.integers(0, 129).map(str)).map("/".join),
    st.text("0123456789abcf.:/-% ", max_size=30),
).filter(lambda text: "/0" not in text or not text.rpartition("/0")[2])


def parses(text):
    try:
        parse_range(text)
    except ValueError:
        return False
    return True


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(found=st.lists(texts, min_size=50, max_size=200))
def test_any_text_is_an_address_to_both_or_to_neither(ask, found):
    _, answer = ask("POST", EIPS + ONLY_JUDGED, eip(addresses=found))
    refused = refusals(answer)
    judged = {text: f"spec.addresses[{i}]" not in refused for i, text in enumerate(found)}
    assert judged == {text: parses(text) for text in found}


# ── Announcement ──


def announcement(name, **status):
    body = {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Announcement", "metadata": {"name": name}}
    return {**body, "status": status} if status else body


@pytest.mark.parametrize("name", ["192.0.2.1", "2001-0db8-0000-0000-0000-0000-0000-0010"])
def test_an_announcement_is_named_for_its_address(ask, name):
    assert ask("POST", ANNOUNCEMENTS + ONLY_JUDGED, announcement(name))[0] == 201


@pytest.mark.parametrize("name", ["web", "192.0.2.256", "2001-db8--10", "192.0.2.1-192.0.2.2", "192.0.2.01"])
def test_another_name_is_refused(ask, name):
    code, answer = ask("POST", ANNOUNCEMENTS + ONLY_JUDGED, announcement(name))
    assert code == 422
    assert "metadata.name must be the EIP" in answer["message"]


numbers = itertools.count(1)


@pytest.fixture
def record(ask):
    """``record(**status)`` patches the status of an Announcement that has term 5, and says whether that was taken."""
    name = f"198.51.100.{next(numbers)}"
    ask("POST", ANNOUNCEMENTS, announcement(name))
    assert ask("PATCH", f"{ANNOUNCEMENTS}/{name}", {"status": {"holder": "n1", "term": 5}})[0] == 200
    yield lambda status: ask("PATCH", f"{ANNOUNCEMENTS}/{name}", {"status": status})
    ask("DELETE", f"{ANNOUNCEMENTS}/{name}")


@pytest.mark.parametrize(
    "status",
    [
        {"term": 6, "holder": "n2", "incarnation": 2**63 - 1},
        {"term": 5, "holder": ""},
        {"link": "eth0", "mac": "02:00:5e:00:53:01", "since": "2026-11-21T16:00:00Z", "services": ["default/web"]},
        {"conflict": "02:00:5e:00:53:02"},
    ],
    ids=str,
)
def test_a_record_may_change(record, status):
    code, answer = record(status)
    assert code == 200, answer


@pytest.mark.parametrize(
    ("status", "rule"),
    [
        ({"term": 4}, "must never go down"),
        ({"term": None}, "term must never be taken away"),
        (None, "status must never be taken away"),
        ({"mac": "02-00-5E-00-53-01"}, "should match"),
        ({"term": -1}, "greater than or equal to 0"),
        ({"term": 2**31 + 1}, "less than or equal to 2147483648"),
        ({"term": 2**62}, "less than or equal to 2147483648"),
    ],
    ids=str,
)
def test_a_record_may_not(record, status, rule):
    code, answer = record(status)
    assert code == 422
    assert rule in answer["message"]


def test_a_term_from_before_there_was_a_limit_may_be_written_anew(ask):
    made = copy.deepcopy(definitions()["announcements.yaml"])
    made["metadata"]["name"], made["spec"]["group"] = "announcements.old.example", "old.example"
    status = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    term = status["properties"]["term"]
    status["properties"]["term"] = {"type": "integer", "format": "int64"}
    crds, old = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/old.example/v1alpha1/announcements"
    assert ask("POST", crds, made)[0] == 201
    body = {**announcement("192.0.2.1"), "apiVersion": "old.example/v1alpha1"}
    until(lambda: asked(ask, "POST", old, body) == 201)
    assert ask("PATCH", f"{old}/192.0.2.1", {"status": {"holder": "n1", "term": 2**62}})[0] == 200
    status["properties"]["term"] = term
    (version,) = made["spec"]["versions"]
    assert ask("PATCH", f"{crds}/announcements.old.example", {"spec": {"versions": [version]}})[0] == 200
    until(lambda: asked(ask, "PATCH", f"{old}/192.0.2.1", {"status": {"term": 2**62 + 1}}) == 422)
    assert ask("PATCH", f"{old}/192.0.2.1", {"status": {"term": 7}})[0] == 200
    assert ask("PATCH", f"{old}/192.0.2.1", {"status": {"term": 6}})[0] == 422
    ask("DELETE", f"{crds}/announcements.old.example")


def asked(ask, *request):
    """0 where the server answers in plain text, as it does for what it does not serve yet."""
    try:
        return ask(*request)[0]
    except json.JSONDecodeError:
        return 0


def until(holds):
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_columns_answer_who_has_my_address(ask, api_server, record):
    facts = Facts("eth0", "02:00:5e:00:53:01", ("default/dns", "default/web"))
    record(correction(AnnouncementObject(Metadata("198.51.100.1")), facts)["status"])
    head, *lines = api_server.kubectl("get", "announcements").splitlines()
    assert head.split() == ["NAME", "HOLDER", "LINK", "MAC", "SERVICES", "SINCE", "CONFLICT", "REASON"]
    assert api_server.kubectl("get", "ann").splitlines()[0] == head
    assert "announcement.eip-speaker.io/" in api_server.kubectl("get", "eip-speaker", "-o", "name")
    assert any(line.split()[1:5] == ["n1", "eth0", "02:00:5e:00:53:01", "default/dns,default/web"] for line in lines)
