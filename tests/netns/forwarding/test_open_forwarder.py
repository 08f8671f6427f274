"""Which forwarder opens for which setting. The development machines' kernel has nftables and no IPVS."""

from pathlib import Path

import pytest

from speaker.errors import Unsupported
from speaker.forwarding.forwarder import open_forwarder
from speaker.forwarding.plan import EMPTY
from speaker.model import Forwarding

pytestmark = pytest.mark.netns


@pytest.fixture
def opened(new_namespace, inside, tmp_path):
    return lambda kind: inside(new_namespace("node"), open_forwarder, kind, tmp_path)


@pytest.fixture
def without_ipvs():
    if Path("/proc/sys/net/ipv4/vs").exists():
        pytest.skip("this kernel has IPVS")


def test_none_does_nothing(opened, inside, new_namespace):
    forwarder, node = opened(Forwarding.NONE), new_namespace("node")
    assert forwarder.name == "none"
    assert inside(node, forwarder.apply, EMPTY) == ()
    assert inside(node, forwarder.problems) == ()
    assert inside(node, forwarder.cleanup) == ()


def test_nftables_is_nftables(opened):
    assert opened(Forwarding.NFTABLES).name == "nftables"


@pytest.mark.usefixtures("without_ipvs")
def test_auto_is_nftables_where_there_is_no_ipvs(opened):
    assert opened(Forwarding.AUTO).name == "nftables"


@pytest.mark.usefixtures("without_ipvs")
def test_ipvs_is_never_replaced_by_something_else(opened):
    with pytest.raises(Unsupported, match="IPVS"):
        opened(Forwarding.IPVS)


@pytest.mark.usefixtures("without_ipvs")
def test_auto_says_why_neither_works(new_namespace, inside, monkeypatch, tmp_path):
    node = new_namespace("node")
    monkeypatch.setenv("PATH", str(tmp_path))  # no nft
    with pytest.raises(Unsupported, match=r"no forwarder works .*nft is not installed"):
        inside(node, open_forwarder, Forwarding.AUTO, tmp_path)
