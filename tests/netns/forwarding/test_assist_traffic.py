"""What clients get where kube-proxy forwards and is assisted: new connections past a dead endpoint, and all else as
kube-proxy has it. Its rules are here as it writes them, in the two ways that this kernel has; the real one, in each of
its modes, is in tests/cluster/test_assist.py."""

import asyncio
import threading
from dataclasses import replace

import pytest

from speaker.forwarding.changes import Assisted
from speaker.forwarding.nftables.forwarder import AssistForwarder, open_assist
from speaker.forwarding.plan import EMPTY
from speaker.model import Protocol

pytestmark = [pytest.mark.netns, pytest.mark.usefixtures("servers")]

TCP, UDP = Protocol.TCP, Protocol.UDP
EVERY_WAY = [(4, TCP), (4, UDP), (6, TCP), (6, UDP)]
MODES = ["nftables", "iptables-nft", "iptables-legacy"]
every_way = pytest.mark.parametrize(("version", "protocol"), EVERY_WAY)
in_each_mode = pytest.mark.parametrize("mode", MODES)

NFT = """
table {ip} kube-proxy {{
  chain nat-prerouting {{
    type nat hook prerouting priority dstnat
    {ip} daddr {eip} meta l4proto {{ tcp, udp }} th dport 80 goto service
  }}
  chain nat-output {{
    type nat hook output priority -100
    {ip} daddr {eip} meta l4proto {{ tcp, udp }} th dport 80 goto service
  }}
  chain service {{
    {fence}
    meta mark set mark or 0x4000
    meta l4proto tcp dnat to numgen inc mod 2 map {{ 0 : {one} . 8080, 1 : {two} . 8080 }}
    meta l4proto udp dnat to numgen inc mod 2 map {{ 0 : {one} . 8080, 1 : {two} . 8080 }}
  }}
  chain nat-postrouting {{
    type nat hook postrouting priority srcnat;
    meta mark and 0x4000 == 0 return
    meta mark set mark xor 0x4000
    masquerade fully-random
  }}
  chain filter-prerouting {{
    type filter hook prerouting priority dstnat - 10
    ct state new {ip} daddr {eip} meta l4proto {{ tcp, udp }} th dport 80 {drop}
  }}
  chain filter-forward {{
    type filter hook forward priority 0; policy drop
    mark and 0x4000 != 0 accept
    ct state established,related accept
    {icmp}
  }}
}}
"""
IPTABLES = """
*nat
:KUBE-SVC -
-A PREROUTING -d {eip} -p tcp --dport 80 -j KUBE-SVC
-A PREROUTING -d {eip} -p udp --dport 80 -j KUBE-SVC
-A OUTPUT -d {eip} -p tcp --dport 80 -j KUBE-SVC
-A OUTPUT -d {eip} -p udp --dport 80 -j KUBE-SVC
{fence}
-A KUBE-SVC -j MARK --or-mark 0x4000
-A KUBE-SVC -p tcp -m statistic --mode nth --every 2 --packet 0 -j DNAT --to-destination {one}:8080
-A KUBE-SVC -p udp -m statistic --mode nth --every 2 --packet 0 -j DNAT --to-destination {one}:8080
-A KUBE-SVC -p tcp -j DNAT --to-destination {two}:8080
-A KUBE-SVC -p udp -j DNAT --to-destination {two}:8080
-A POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A POSTROUTING -j MARK --xor-mark 0x4000
-A POSTROUTING -j MASQUERADE --random-fully
COMMIT
*filter
:FORWARD DROP [0:0]
-A FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -p {icmp} -j ACCEPT
{drop}
COMMIT
"""


@pytest.fixture
def kube_proxy(lan, sh, tmp_path):
    """``kube_proxy(mode, version, source="")``: its rules for the EIP's port 80, TCP and UDP; only ``source`` may
    connect."""

    def laid(text: str, program: str) -> None:
        (tmp_path / "rules").write_text(text)
        sh(lan.node, f"{program} {tmp_path}/rules")

    def lay(mode: str, version: int, source: str = "") -> None:
        ip, at = ("ip", lan.addresses) if version == 4 else ("ip6", lan.addresses)
        icmp = "icmp" if version == 4 else "icmpv6"
        words = {"ip": ip, "eip": lan.eip[version], "one": at["one"][version], "two": at["two"][version]}
        if mode == "nftables":
            fence = f"{ip} saddr != {source} return" if source else ""
            drop = f"{ip} saddr != {source} drop" if source else "accept"
            script = NFT.format(**words, fence=fence, drop=drop, icmp=f"meta l4proto {icmp} accept")
            laid(script, "nft -f")
            return
        if version == 6:
            words |= {name: f"[{words[name]}]" for name in ("one", "two")}
            mode, icmp = mode.replace("iptables", "ip6tables"), "icmpv6"
        fence = f"-A KUBE-SVC ! -s {source} -j RETURN" if source else ""
        drop = f"-A FORWARD -d {words['eip']} -j DROP" if source else ""
        name, _, kind = mode.partition("-")
        laid(IPTABLES.format(**words, fence=fence, drop=drop, icmp=icmp), f"{name}-{kind}-restore")

    return lay


@pytest.fixture
def server(lan, virtual_server):
    """``server(version, protocol)``: two died, and one lives."""

    def make(version: int, protocol: Protocol = TCP, **settings):
        two = () if protocol is UDP else (lan.real("two", version, weight=0),)
        return replace(
            virtual_server(version, protocol, real_servers=(lan.real("one", version), *two), **settings),
            without=("n2",),
        )

    return make


@pytest.fixture
def assist(lan, inside, plan_of):
    return lambda *servers: inside(lan.node, AssistForwarder().apply, Assisted().of(plan_of(*servers), 0))


@in_each_mode
@every_way
def test_new_connections_go_past_the_dead_endpoint_and_look_as_kube_proxys(
    lan, kube_proxy, server, assist, ask, counted, mode, version, protocol
):
    kube_proxy(mode, version)
    assert counted(8, lan.client, lan.eip[version], protocol=protocol) == {"one": 4, "two": 4}
    seen = {ask(lan.client, lan.eip[version], protocol=protocol)[1] for _ in range(8)}
    assist(server(version, protocol))
    assert counted(8, lan.client, lan.eip[version], protocol=protocol) == {"one": 8}
    assert counted(4, lan.node, lan.eip[version], protocol=protocol) == {"one": 4}
    assert ask(lan.client, lan.eip[version], protocol=protocol)[1] in seen, "the node, and not the client"
    assist()
    assert counted(8, lan.client, lan.eip[version], protocol=protocol) == {"one": 4, "two": 4}


@in_each_mode
@pytest.mark.parametrize("version", [4, 6])
def test_source_ranges_are_kube_proxys_to_refuse_and_never_passed(
    lan, sh, kube_proxy, server, assist, ask, mode, version
):
    client = lan.addresses["client"][version]
    other = "192.0.2.77" if version == 4 else "2001:db8:2::77"
    sh(lan.client, f"ip addr add {other}{'/24' if version == 4 else '/64 nodad'} dev eth0")
    kube_proxy(mode, version, client)
    assist(server(version, sources=(client,)))
    assert ask(lan.client, lan.eip[version], source=client)[0] == "one"
    with pytest.raises(OSError, match=r"timed out|unreachable|refused"):
        ask(lan.client, lan.eip[version], source=other, timeout=1)


@every_way
def test_what_goes_on_and_what_begins_anew_when_a_node_dies(
    lan, sh, kube_proxy, server, assist, open_socket, version, protocol
):
    """Established connections are kube-proxy's; UDP's next packet goes to a living endpoint."""
    kube_proxy("nftables", version)
    held = []
    for _ in range(2):
        asking = open_socket(lan.client, version, protocol)
        asking.connect((str(lan.eip[version]), 80))
        if protocol is UDP:
            asking.send(b"?")
        held.append((asking, asking.recv(200).decode().split()[0]))
    assert {name for _, name in held} == {"one", "two"}
    assist(server(version, protocol))
    tracked = sh(lan.node, f"conntrack -L -f ipv{version} -p {protocol.lower()}")
    two = lan.addresses["two"][version]
    if protocol is UDP:
        assert f"src={two}" not in tracked
        for asking, _ in held:
            asking.send(b"?")
            assert asking.recv(200).decode().split()[0] == "one"
    else:
        assert f"src={two}" in tracked
    for asking, _ in held:
        asking.close()


@pytest.mark.parametrize("version", [4, 6])
def test_a_connection_that_waits_for_the_dead_endpoint_gets_a_living_one_with_its_next_packet(
    lan, sh, kube_proxy, server, assist, ask, version
):
    kube_proxy("nftables", version)
    sh(lan.two, "nft add table inet dead")
    sh(lan.two, "nft add chain inet dead in { type filter hook input priority 0 ; policy drop ; }")
    answers: list[str] = []
    asking = [threading.Thread(target=lambda: answers.extend(ask(lan.client, lan.eip[version])[:1])) for _ in range(2)]
    for each in asking:
        each.start()
    while sh(lan.node, f"conntrack -L -f ipv{version} -p tcp").count("dport=80 ") < 2:
        pass
    assist(server(version))
    for each in asking:
        each.join()
    assert answers == ["one", "one"]


def test_nothing_is_left_when_all_nodes_live_or_it_is_cleaned_up(lan, sh, inside, server, assist, plan_of):
    tables = sh(lan.node, "nft list tables")
    assist(server(4), server(6, UDP))
    assert "eip-speaker-assist" in sh(lan.node, "nft list tables")
    assert "timeout 30s" in sh(lan.node, "nft list map inet eip-speaker-assist services4"), "it ends by itself"
    assist()
    assert sh(lan.node, "nft list tables") == tables
    assist(server(4))
    assert inside(lan.node, AssistForwarder().cleanup) == ("nftables table inet eip-speaker-assist",)
    assert inside(lan.node, AssistForwarder().cleanup) == ()
    assert sh(lan.node, "nft list tables") == tables


def test_a_kernel_that_can_do_it_is_asked_first(lan, inside):
    async def name() -> str:
        return (await open_assist()).name

    assert inside(lan.node, name) == "assist"


def test_who_flushed_everybodys_tables_has_it_back_with_the_next_renewal(lan, sh, plan_of, server):
    now = [0.0]
    forwarder = AssistForwarder(lambda: now[0])

    async def main() -> None:
        await forwarder.apply(Assisted().of(plan_of(server(4)), 0))
        sh(lan.node, "nft flush ruleset")
        now[0] = 60.0
        await forwarder.tend()
        assert "eip-speaker-assist" in sh(lan.node, "nft list tables")
        await forwarder.apply(EMPTY)

    with lan.node.entered():
        asyncio.run(main())
    assert "eip-speaker-assist" not in sh(lan.node, "nft list tables")
