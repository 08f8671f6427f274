"""What is kept for an agent that starts without an API: what was kept comes back, and nothing else does."""

import zlib

import msgspec
import pytest

from speaker.agent.last_known import MAX_PACKED, NAME, VERSION, known, recall, remember
from speaker.api.kinds import ASSIGNED, ASSIGNED_FROM, AssignedObject, EipObject, HostObject, NodeObject, SliceObject
from speaker.errors import EdgeError


def decoded(kind, **parts):
    return msgspec.convert(parts, kind)


NODE = decoded(NodeObject, metadata={"name": "node1", "uid": "u", "labels": {"example.com/edge": "yes"}})
HOST = decoded(
    HostObject,
    metadata={"name": "node2"},
    status={"addresses": [{"type": "InternalIP", "address": "192.0.2.2"}]},
)
WEB = decoded(
    AssignedObject,
    metadata={
        "name": "web",
        "namespace": "shop",
        "resourceVersion": "7",
        "annotations": {"eip-speaker.io/scheduler": "wlc"},
    },
    spec={
        "type": "LoadBalancer",
        "loadBalancerClass": "eip-speaker.io/speaker",
        "ports": [{"name": "http", "port": 80}],
        "ipFamilies": ["IPv4"],
        "externalTrafficPolicy": "Local",
    },
    status={
        "loadBalancer": {"ingress": [{"ip": "192.0.2.200"}]},
        "conditions": [{"type": ASSIGNED}, {"type": ASSIGNED_FROM, "message": "IPv4 from lan"}],
    },
)
WAITING = decoded(AssignedObject, metadata={"name": "waiting", "namespace": "shop"}, spec={"type": "LoadBalancer"})


def slice_for(service):
    return decoded(
        SliceObject,
        metadata={"name": f"{service}-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": service}},
        addressType="IPv4",
        endpoints=[{"addresses": ["10.0.0.1"], "conditions": {"ready": True}, "nodeName": "node1"}],
        ports=[{"name": "http", "port": 8080, "protocol": "TCP"}],
    )


POOL = decoded(EipObject, metadata={"name": "lan"}, spec={"addresses": ["192.0.2.200-192.0.2.250"]})
SEEN = known("node1", NODE, [WEB, WAITING], [slice_for("web"), slice_for("waiting")], [POOL], [HOST])


def test_what_is_remembered_is_recalled_and_is_about_services_with_an_eip(tmp_path):
    remember(tmp_path, SEEN)
    found = recall(tmp_path, "node1")
    assert found == SEEN
    assert (found.services, found.slices) == ((WEB,), (slice_for("web"),))


def test_where_nothing_was_remembered_nothing_is_known(tmp_path):
    assert recall(tmp_path, "node1") is None


@pytest.mark.parametrize(
    "other", [msgspec.structs.replace(SEEN, name="node2"), msgspec.structs.replace(SEEN, version=VERSION + 1)]
)
def test_what_another_node_or_release_remembered_is_not_known(tmp_path, other):
    remember(tmp_path, other)
    assert recall(tmp_path, "node1") is None


WHOLE = zlib.compress(msgspec.json.encode(SEEN))


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", WHOLE[:-9], zlib.compress(b"{}"), zlib.compress(b"\xff"), zlib.compress(b"[" * 100_000)],
)
def test_a_file_that_cannot_be_read_is_told_of_and_is_none(tmp_path, content):
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(EdgeError, match="known"):
        recall(tmp_path, "node1")


def test_a_file_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("speaker.agent.last_known.MAX_BYTES", 1000)
    (tmp_path / NAME).write_bytes(zlib.compress(b" " * 100_000))
    with pytest.raises(EdgeError, match="too long"):
        recall(tmp_path, "node1")


def test_a_file_that_is_longer_than_any_of_ours_is_refused(tmp_path):
    (tmp_path / NAME).write_bytes(bytes(MAX_PACKED + 1))
    with pytest.raises(EdgeError, match="too large"):
        recall(tmp_path, "node1")


def test_what_is_no_file_is_refused(tmp_path):
    (tmp_path / NAME).mkdir()
    with pytest.raises(EdgeError, match="directory"):
        recall(tmp_path, "node1")


def test_too_much_is_not_kept_and_nor_is_what_was_kept_before(tmp_path, monkeypatch):
    remember(tmp_path, SEEN)
    monkeypatch.setattr("speaker.agent.last_known.MAX_BYTES", 100)
    with pytest.raises(EdgeError, match="too many"):
        remember(tmp_path, SEEN)
    assert recall(tmp_path, "node1") is None
