"""Good manifests come out as what they say, whatever they are spread over."""

import os
import socket
from contextlib import suppress
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.errors import InvalidManifests
from speaker.model import (
    AddressRange,
    CanReach,
    Endpoint,
    Gratuitous,
    LabelRule,
    LabelSelector,
    LinkNames,
    OwnSubnet,
    Pool,
    Protocol,
    ServiceKey,
)
from speaker.standalone.document import parse
from speaker.standalone.manifests import load

EXAMPLES = Path(__file__).parents[3] / "manifests" / "examples"

EIP = """
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {{name: {name}}}
spec: {{addresses: [{addresses}]}}
"""


def network(text):
    found = ip_network(text)
    return AddressRange(found.network_address, found.broadcast_address, found)


def pool_of(directory, spec):
    before = "apiVersion: eip-speaker.io/v1alpha1\nkind: Eip\nmetadata: {name: lan}\nspec:\n  addresses: [192.0.2.1]\n"
    (directory / "lan.yaml").write_text(before + spec)
    return load(directory).world.pools["lan"]


def test_every_field_of_an_eip_is_read(tmp_path):
    (tmp_path / "lan.yaml").write_text(
        """
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {name: lan.example, labels: {a: b}, annotations: {c: d}}
spec:
  addresses: [192.0.2.0/24, "2001:db8::-2001:db8::ff"]
  exclude: [192.0.2.7]
  interface: eth1,eth0
  nodeSelector: {matchLabels: {zone: a}}
  namespaces: [shop]
  namespaceSelector: {matchExpressions: [{key: team, operator: Exists}]}
  serviceSelector: {matchExpressions: [{key: tier, operator: NotIn, values: [test, dev]}]}
  priority: -5
  autoAssign: false
  avoidNetworkAndBroadcast: false
  disabled: true
  gratuitous: {burst: 3, interval: 1500ms, refresh: 1h30m}
status: {whatever: it was}
"""
    )
    seven = ip_address("192.0.2.7")
    assert load(tmp_path).world.pools == {
        "lan.example": Pool(
            name="lan.example",
            addresses=(
                network("192.0.2.0/24"),
                AddressRange(ip_address("2001:db8::"), ip_address("2001:db8::ff")),
            ),
            exclude=(AddressRange(seven, seven),),
            interface=LinkNames(("eth1", "eth0")),
            node_selector=LabelSelector((LabelRule("zone", "In", frozenset({"a"})),)),
            namespaces=frozenset({"shop"}),
            namespace_selectors=(LabelSelector((LabelRule("team", "Exists"),)),),
            service_selectors=(LabelSelector((LabelRule("tier", "NotIn", frozenset({"test", "dev"})),)),),
            priority=-5,
            auto_assign=False,
            avoid_network_and_broadcast=False,
            disabled=True,
            gratuitous=Gratuitous(3, 1.5, 5400.0),
        )
    }


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("", OwnSubnet()),
        ("  interface: ~", OwnSubnet()),
        ("  interface: eth0", LinkNames(("eth0",))),
        ("  interface: a-name-too-lon", LinkNames(("a-name-too-lon",))),
        ("  interface: fifteen-bytes-x", LinkNames(("fifteen-bytes-x",))),
        ("  interface: bond0.10,lo0", LinkNames(("bond0.10", "lo0"))),
        ("  interface: can_reach:198.51.100.1", CanReach(ip_address("198.51.100.1"))),
        ("  interface: can_reach:2001:db8::1", CanReach(ip_address("2001:db8::1"))),
    ],
)
def test_interface_is_a_name_names_or_a_target(tmp_path, written, read):
    assert pool_of(tmp_path, written).interface == read


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("0", 0.0), ("300", 300.0), ("1.5", 1.5), ("300s", 300.0), ("5m", 300.0), ("1h0.5m", 3630.0), ("'0s'", 0.0)],
)
def test_a_duration_is_a_number_of_seconds_or_has_units(tmp_path, written, seconds):
    assert pool_of(tmp_path, f"  gratuitous: {{refresh: {written}}}").gratuitous.refresh == seconds


def test_what_one_pool_excludes_another_may_offer(tmp_path):
    (tmp_path / "a.yaml").write_text(
        EIP.format(name="wide", addresses="192.0.2.0/24").replace("]}", "], exclude: [192.0.2.16/28]}")
    )
    (tmp_path / "b.yaml").write_text(EIP.format(name="special", addresses="192.0.2.16/28"))
    assert set(load(tmp_path).world.pools) == {"wide", "special"}


def test_an_exclusion_at_the_edge_of_a_range_leaves_nothing_behind(tmp_path):
    rest = EIP.format(name="rest", addresses="192.0.2.16-192.0.2.31").replace("]}", "], exclude: [192.0.2.16/29]}")
    (tmp_path / "a.yaml").write_text(rest)
    (tmp_path / "b.yaml").write_text(EIP.format(name="special", addresses="192.0.2.10-192.0.2.20"))
    assert set(load(tmp_path).world.pools) == {"rest", "special"}


def test_what_one_pool_does_not_exclude_another_may_not_offer(tmp_path):
    (tmp_path / "a.yaml").write_text(
        EIP.format(name="wide", addresses="192.0.2.0/24").replace("]}", "], exclude: [192.0.2.17/32]}")
    )
    (tmp_path / "b.yaml").write_text(EIP.format(name="special", addresses="192.0.2.17, 192.0.2.18"))
    with pytest.raises(InvalidManifests) as caught:
        load(tmp_path)
    assert [problem.path for problem in caught.value.problems] == ["spec.addresses[1]"]


def test_files_are_read_by_name_and_what_editors_and_configmaps_leave_is_passed_over(tmp_path):
    data = tmp_path / "..2026_01_01"
    data.mkdir()
    (tmp_path / "..data").symlink_to(data.name)
    for name in ("b.yml", "a.yaml", "c.json"):
        (data / name).write_text(EIP.format(name=name[0], addresses=f"192.0.2.{ord(name[0])}"))
        (tmp_path / name).symlink_to(f"..data/{name}")
    for name in (".a.yaml.swp", ".hidden.yaml", "a.yaml~", "#a.yaml#", "a.yaml.bak", "README.md"):
        (tmp_path / name).write_text("not: [yaml")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "d.yaml").write_text("not: [yaml")
    assert list(load(tmp_path).world.pools) == ["a", "b", "c"]


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


IRREGULAR = {
    "a link to nothing": (
        lambda path: path.symlink_to("..data/web.yaml"),
        "Is a link to ..data/web.yaml, which",
    ),
    "a link to itself": (lambda path: path.symlink_to(path.name), "Too many levels of symbolic links"),
    "a directory": (lambda path: path.mkdir(), "Is a directory"),
    "a FIFO": (os.mkfifo, "Is a FIFO"),
    "a socket": (a_socket, "Is a socket"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "Is a device"),
}


@pytest.mark.parametrize(("make", "said"), IRREGULAR.values(), ids=IRREGULAR.keys())
def test_a_manifest_that_is_no_file_is_a_mistake_and_told_by_name(tmp_path, monkeypatch, make, said):
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    (tmp_path / "a.yaml").write_text(EIP.format(name="a", addresses="192.0.2.1"))
    make(Path("web.yaml"))
    with pytest.raises(InvalidManifests) as caught:
        load(tmp_path)
    (problem,) = caught.value.problems
    assert str(problem).startswith(f"{tmp_path}/web.yaml: 'web.yaml': must be a file that can be read: {said}")
    assert caught.value.may_pass


def test_a_mistake_in_a_file_does_not_pass_by_itself(tmp_path):
    (tmp_path / "a.yaml").write_text("not: [yaml")
    with pytest.raises(InvalidManifests) as caught:
        load(tmp_path)
    assert not caught.value.may_pass


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (b"caf\xe9.yaml", r"caf\xe9.yaml"),
        (b"two\nlines.yaml", r"two\nlines.yaml"),
        (b"\x1b[31mred.yaml", r"\x1b[31mred.yaml"),
        ("grün.yaml".encode(), "grün.yaml"),
    ],
)
@pytest.mark.parametrize("content", [b"not: [yaml", b"\xff", b"{kind: Eip}"])
def test_any_name_of_a_file_is_told_in_characters_that_can_be_written(tmp_path, name, told, content):
    Path(os.fsdecode(bytes(tmp_path) + b"/" + name)).write_bytes(content)
    with pytest.raises(InvalidManifests) as caught:
        load(tmp_path)
    assert {problem.place.file for problem in caught.value.problems} == {f"{tmp_path}/{told}"}
    assert "\n" not in str(caught.value.problems[0]).encode().decode()


def test_a_key_that_holds_no_character_is_told_in_some_that_can_be_written(tmp_path):
    text = EIP.format(name="a", addresses="192.0.2.1")
    (tmp_path / "a.yaml").write_text(text.replace("spec:", '"\\ud800": 1\nspec:'))
    with pytest.raises(InvalidManifests) as caught:
        load(tmp_path)
    str(caught.value).encode()


def test_json_as_kubectl_writes_it_is_read(tmp_path):
    (tmp_path / "all.json").write_text(
        '{\n\t"apiVersion": "v1",\n\t"items": [\n\t\t{"apiVersion": "v1", "kind": "Namespace", "metadata": '
        '{"name": "shop", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"team": "a"}}}\n\t],\n'
        '\t"kind": "List", "metadata": {"resourceVersion": ""}\n}\n'
    )
    assert load(tmp_path).world.namespaces == {"shop": {"team": "a", "kubernetes.io/metadata.name": "shop"}}


def test_a_list_of_one_kind_is_read_as_the_api_server_writes_it(tmp_path):
    """``kubectl get --raw``: objects of the core do not say their kind again."""
    (tmp_path / "all.json").write_text(
        '{"kind": "NamespaceList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": ['
        '{"metadata": {"name": "shop", "labels": {"team": "a"}}}]}'
    )
    (tmp_path / "none.json").write_text('{"kind": "NamespaceList", "apiVersion": "v1", "items": []}')
    assert load(tmp_path).world.namespaces == {"shop": {"team": "a", "kubernetes.io/metadata.name": "shop"}}


def test_a_mistake_in_such_a_list_is_told_where_it_stands(tmp_path):
    (tmp_path / "all.yaml").write_text(
        "apiVersion: eip-speaker.io/v1alpha1\nkind: EipList\nitems:\n- metadata: {name: a}\n  spec: {addresses: [x]}\n"
    )
    with pytest.raises(InvalidManifests) as caught:
        load(tmp_path)
    (problem,) = caught.value.problems
    assert (problem.place.line, problem.path) == (5, "spec.addresses[0]")


def test_anchors_and_merge_keys_mean_what_yaml_says(tmp_path):
    (tmp_path / "web.yaml").write_text(
        """
apiVersion: v1
kind: List
items:
- &web
  apiVersion: v1
  kind: Service
  metadata: &meta {name: web, namespace: shop}
  spec: &spec
    type: LoadBalancer
    ports: [{port: 80}]
    externalTrafficPolicy: Local
- <<: *web
  metadata: {<<: *meta, name: web2}
  spec:
    <<: [{ports: [{port: 81}]}, *spec]
    externalTrafficPolicy: Cluster
"""
    )
    services = load(tmp_path).world.services
    assert {str(key): (s.ports[0].port, s.traffic_policy.value) for key, s in services.items()} == {
        "shop/web": (80, "Local"),
        "shop/web2": (81, "Cluster"),
    }


def test_timestamps_and_sexagesimal_numbers_are_text_as_to_kubectl():
    parsed = parse("a.yaml", "[2026-01-01, 2026-01-01T10:00:00Z, 12:34, 1:20.5, 0x1F, -3, 1.5, ~, on, 'on']")
    assert parsed.objects[0].data == [
        "2026-01-01",
        "2026-01-01T10:00:00Z",
        "12:34",
        "1:20.5",
        31,
        -3,
        1.5,
        None,
        True,
        "on",
    ]


def test_an_empty_directory_asks_for_nothing_and_says_so(tmp_path):
    reading = load(tmp_path)
    assert reading.world.pools == {}
    told = "there are no manifests in this directory: their names end in .yaml, .yml or .json"
    assert [str(notice) for notice in reading.notices] == [f"{tmp_path}: {told}"]


def test_a_name_that_only_capitals_keep_from_being_read_is_told(tmp_path):
    for name in ("a.YAML", "b.Yml", ".c.YAML", "d.yaml.bak", "e.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "f.yaml").write_text("{apiVersion: v1, kind: Namespace, metadata: {name: web}}")
    told = "is not read: its name must end in .yaml, .yml or .json, in small letters"
    assert [str(notice) for notice in load(tmp_path).notices] == [
        f"{tmp_path}/a.YAML: {told}",
        f"{tmp_path}/b.Yml: {told}",
    ]


def thing(version, kind, rest=""):
    return f"{{apiVersion: {version}, kind: {kind}, metadata: {{name: web}}{rest}}}"


ORPHAN = """
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, labels: {kubernetes.io/service-name: webb}}
addressType: IPv4
"""
UNREAD = "ignored: the speaker does not read this kind of apiVersion "
NOTICED = [
    (thing("apps/v1", "Deployment"), f"{UNREAD}'apps/v1'"),
    (thing("v1", "ConfigMap"), f"{UNREAD}'v1'"),
    (thing("serving.knative.dev/v1", "Service"), f"{UNREAD}'serving.knative.dev/v1'"),
    (
        thing("network.kubesphere.io/v1alpha2", "Eip"),
        "ignored: it belongs to OpenELB: `speaker convert` translates it",
    ),
    (thing("v1", "Service", ", spec: {ports: [{port: 80}]}"), "ignored: it is not of type LoadBalancer"),
    (
        thing("v1", "Service", ", spec: {type: LoadBalancer, loadBalancerClass: example.com/x}"),
        "ignored: its loadBalancerClass is not eip-speaker.io/speaker",
    ),
    (ORPHAN, "gives endpoints to Service default/webb, which is not in these manifests"),
]


@pytest.mark.parametrize(("text", "sentence"), NOTICED)
def test_what_is_passed_over_is_noticed(tmp_path, text, sentence):
    (tmp_path / "a.yaml").write_text(text)
    assert [notice.sentence for notice in load(tmp_path).notices] == [sentence]


def test_a_service_without_a_class_is_ours_only_by_default_class(tmp_path):
    (tmp_path / "a.yaml").write_text(
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {type: LoadBalancer, ports: [{port: 80}]}"
    )
    assert list(load(tmp_path).world.services) == [ServiceKey("default", "web")]
    reading = load(tmp_path, default_class=False)
    assert not reading.world.services
    assert [notice.sentence for notice in reading.notices] == [
        "ignored: it names no loadBalancerClass (ours is eip-speaker.io/speaker)"
    ]


def test_the_examples_are_right_and_hold_what_their_comments_promise():
    reading = load(EXAMPLES)
    world = reading.world
    assert reading.notices == ()
    assert set(world.pools) == {"lan", "dmz"}
    assert {str(key) for key in world.services} == {
        "default/web",
        "default/dns-udp",
        "default/dns-tcp",
        "shop/checkout",
    }
    assert set(world.endpoints) == set(world.services)
    assert world.endpoints[ServiceKey("default", "dns-udp")][0] == Endpoint(ip_address("10.0.0.21"), 53, Protocol.UDP)


# ── Whatever stands in a file ──


words = st.sampled_from(
    [
        *("apiVersion", "kind", "metadata", "spec", "v1", "Service", "Eip", "eip-speaker.io/v1alpha1", "List", "items"),
        *(
            "name",
            "addresses",
            "ports",
            "port",
            "type",
            "LoadBalancer",
            "192.0.2.1",
            "<<",
            "*a",
            "&a",
            "!!int",
            "!!set",
        ),
        *("!x", "0b_", "1:2", "._", "%", ":", "-", "- ", ": ", "\n", "\n  ", "---\n", "[", "]", "{", "}", ",", "?"),
        *("|", ">", "'", '"', "#", "~"),
    ]
)


@given(st.one_of(st.text(), st.lists(words).map("".join), st.lists(words).map(" ".join)))
def test_no_text_makes_the_reader_raise(text):
    parsed = parse("a.yaml", text.encode(errors="replace").decode())
    for source in parsed.objects:
        assert source.locate(()).line >= 1


@given(st.binary())
def test_no_bytes_make_the_directory_reader_raise_anything_but_its_own_error(tmp_path_factory, content):
    directory = tmp_path_factory.mktemp("manifests")
    (directory / "a.yaml").write_bytes(content)
    with suppress(InvalidManifests):
        load(directory)


def test_files_with_byte_order_marks_may_be_put_together(tmp_path):
    pool = "\ufeffapiVersion: eip-speaker.io/v1alpha1\nkind: Eip\nmetadata: {name: %s}\nspec: {addresses: [%s]}\n"
    (tmp_path / "a.yaml").write_text(
        f"{pool % ('a', '192.0.2.1')}---\n{pool % ('b', '192.0.2.2')}--- # c\r\n{pool % ('c', '192.0.2.3')}"
    )
    assert load(tmp_path).world.pools.keys() == {"a", "b", "c"}
    (tmp_path / "b.yaml").write_text(f"---\n{pool % ('d', '192.0.2.300')}")
    with pytest.raises(InvalidManifests, match=r"b\.yaml:5: Eip/d: spec\.addresses\[0\]"):
        load(tmp_path)


def test_a_service_without_slices_is_known_to_have_no_endpoint(tmp_path):
    """Not to be unknown: `speaker status` tells of it."""
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n"
    (tmp_path / "web.yaml").write_text(service + "spec: {type: LoadBalancer, ports: [{port: 80}]}\n")
    assert load(tmp_path).world.endpoints == {ServiceKey("shop", "web"): ()}
