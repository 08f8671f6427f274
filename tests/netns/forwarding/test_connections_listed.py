"""``speaker connections`` where nftables forwards: the kernel's own list of connections."""

import io
import json
from pathlib import Path

import pytest

from speaker.errors import EdgeError
from speaker.forwarding.nftables.forwarder import NftablesForwarder
from speaker.model import Protocol
from speaker.tools.connections import NET, connections

pytestmark = [pytest.mark.netns, pytest.mark.usefixtures("servers")]


@pytest.fixture
def listed(lan):
    """What ``speaker connections --json`` says on the node."""
    if not (NET / "nf_conntrack").exists():
        pytest.skip("this kernel does not list connections (CONFIG_NF_CONNTRACK_PROCFS)")

    def ask(runtime_dir: Path, eip: str = "") -> dict:
        out = io.StringIO()
        with lan.node.entered():
            assert connections(runtime_dir, out, eip, "100", True) == 0
        return json.loads(out.getvalue())

    return ask


@pytest.mark.parametrize("version", [4, 6])
def test_a_connection_is_listed_with_the_real_server_that_it_went_to(
    lan, inside, plan_of, virtual_server, ask, listed, tmp_path, version
):
    servers = [virtual_server(version, protocol, real_servers=("one",)) for protocol in (Protocol.TCP, Protocol.UDP)]
    inside(lan.node, NftablesForwarder().apply, plan_of(*servers))
    for protocol in (Protocol.TCP, Protocol.UDP):
        assert ask(lan.client, lan.eip[version], protocol=protocol, source_port=40_000)[0] == "one"
    with pytest.raises(OSError, match=r".*"):
        ask(lan.client, lan.eip[version], port=81)  # refused: nobody translated it

    status = {"eips": [{"address": str(lan.eip[version])}]}
    (tmp_path / "status.json").write_text(json.dumps(status))
    for found in (listed(tmp_path), listed(Path("/nowhere"), str(lan.eip[version]))):
        shown = {line["protocol"]: line for line in found["shown"]}
        assert shown.keys() == {"TCP", "UDP"}
        assert found["connections"] == 2
        assert found["unreadable"] == 0
        client, eip, real = (lan.addresses["client"][version], lan.eip[version], lan.addresses["one"][version])
        for line in shown.values():
            assert line["client"] == socket_of(client, 40_000)
            assert line["virtual_server"] == socket_of(eip, 80)
            assert line["real_server"] == socket_of(real, 8080)
            assert line["forgotten_in"] >= 0
        assert shown["UDP"]["state"] == "datagrams"
        assert shown["TCP"]["state"] in ("closing", "closed", "established")


def socket_of(address, port):
    return f"[{address}]:{port}" if ":" in str(address) else f"{address}:{port}"


def test_without_a_speaker_that_says_which_addresses_are_eips_one_must_be_named(listed):
    with pytest.raises(EdgeError, match="name one"):
        listed(Path("/nowhere"))
