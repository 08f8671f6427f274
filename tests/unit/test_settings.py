"""A wrong setting cannot exist: it is refused when built, with its value and its rule."""

from pathlib import Path

import pytest

from speaker.errors import SettingError, written
from speaker.model import Forwarding
from speaker.ownership.parameters import Parameters
from speaker.settings import Bind, Node, PeerSettings


@pytest.mark.parametrize(
    ("text", "bind"),
    [
        ("127.0.0.1:9900", Bind("127.0.0.1", 9900)),
        ("[::1]:80", Bind("::1", 80)),
        ("0.0.0.0:65535", Bind("0.0.0.0", 65535)),
        ("off", None),
    ],
)
def test_a_metrics_address_is_a_literal_and_a_port(text, bind):
    assert Bind.parse(text) == bind


@pytest.mark.parametrize(
    "text",
    [
        *("", "9900", ":9900", "localhost:9900", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:x"),
        *("127.0.0.1: 9900", "127.0.0.1:99_00", "127.0.0.1:+9900", "127.0.0.1:٩٩٠٠", "127.0.0.1:" + "9" * 5000),
    ],
)
def test_a_metrics_address_that_cannot_work_is_refused_with_its_value(text):
    with pytest.raises(SettingError, match=r"must be ADDRESS:PORT") as refused:
        Bind.parse(text)
    assert written(text) in str(refused.value)


def test_a_node_always_carries_its_hostname_label():
    assert Node.parse("n1", "rack=a,example.com/zone=b") == Node(
        "n1", {"kubernetes.io/hostname": "n1", "rack": "a", "example.com/zone": "b"}
    )


@pytest.mark.parametrize("name", ["", "Node", "n_1", "-n", "n" * 254, "a..b", "a.-b", "a-.b", "a.", "n/1"])
def test_a_node_name_that_kubernetes_would_refuse_is_refused(name):
    with pytest.raises(SettingError, match="--node"):
        Node.parse(name)


@pytest.mark.parametrize(
    "labels", ["rack", "=a", "rack=a b", "a b=c", "rack=-", "a..b/c=d", "/a=b", f"{'a' * 254}/b=c"]
)
def test_a_label_that_kubernetes_would_refuse_is_refused(labels):
    with pytest.raises(SettingError, match="--node-labels"):
        Node.parse("n1", labels)


def test_a_label_that_is_named_twice_is_refused_and_the_hostname_may_be_another():
    with pytest.raises(SettingError, match="--node-labels rack=b: names rack again"):
        Node.parse("n1", "rack=a,rack=b")
    assert Node.parse("n1", "kubernetes.io/hostname=h1").labels == {"kubernetes.io/hostname": "h1"}


def test_a_name_as_long_as_kubernetes_takes_one_is_taken():
    name = ".".join(["n" * 63] * 3 + ["n" * 61])
    assert Node.parse(name, f"{name}/b=c").name == name
    assert len(name) == 253


def test_without_peers_there_are_no_peer_settings():
    assert PeerSettings.parse(False) is None


@pytest.mark.parametrize(
    "flags",
    [{"key_file": Path("/k")}, {"hello": "100"}, {"ethertype": "0x88B5"}],
)
def test_a_flag_about_peers_without_peers_is_refused_for_the_host_would_believe_it_is_alone(flags):
    with pytest.raises(SettingError, match=r"^--(key|hello|ethertype) .*: needs --with-peers"):
        PeerSettings.parse(False, **flags)


def test_who_is_alone_has_nobody_to_hand_anything_over_to():
    with pytest.raises(SettingError, match=r"^--hand-over: needs --with-peers: without peers no EIP ever moves"):
        PeerSettings.parse(False, hand_over=True)


def test_whether_connections_are_handed_over_is_for_the_kernel_to_say_unless_somebody_has():
    assert [PeerSettings.parse(True, hand_over=on).hand_over for on in (None, False, True)] == [None, False, True]
    assert PeerSettings.of_agent(None, None, None, "0").hand_over is None
    assert PeerSettings.of_agent(None, None, None, "0", False).hand_over is False


@pytest.mark.parametrize("asked", [None, False, True])
@pytest.mark.parametrize("forwarder", Forwarding)
def test_a_host_that_forwards_nothing_hands_over_only_when_asked_to(forwarder, asked):
    expected = forwarder not in (Forwarding.NONE, Forwarding.ASSIST) if asked is None else asked
    assert PeerSettings(hand_over=asked).hands_over(forwarder) is expected


def test_what_is_not_said_about_peers_has_a_default():
    assert PeerSettings.parse(True) == PeerSettings(Path("/etc/speaker/key"), 0.1, 0x88B5)


def test_everything_that_is_said_about_peers_is_taken():
    assert PeerSettings.parse(True, Path("k"), "25", "0x88b6") == PeerSettings(Path("k"), 0.025, 0x88B6)


def test_every_hello_interval_makes_parameters_that_work():
    for milliseconds in range(20, 1001):
        peers = PeerSettings.parse(True, hello=str(milliseconds))
        assert peers is not None
        assert Parameters.for_hello(peers.hello).hello == milliseconds / 1000


@pytest.mark.parametrize(
    "text", ["19", "1001", "0", "-100", "", "0.1", "1e2", "100ms", " 100", "1_00", "٣٠", "9" * 5000]
)
def test_a_hello_interval_that_cannot_work_is_refused_with_its_value_and_the_rule(text):
    with pytest.raises(SettingError) as refused:
        PeerSettings.parse(True, hello=text)
    assert str(refused.value) == f"--hello {written(text)}: must be whole milliseconds from 20 to 1000"


@pytest.mark.parametrize(
    ("text", "number"), [("0x88B5", 0x88B5), ("34998", 34998), ("0x0600", 0x600), ("0XFFFF", 0xFFFF)]
)
def test_an_ethertype_is_hexadecimal_or_decimal(text, number):
    peers = PeerSettings.parse(True, ethertype=text)
    assert peers is not None
    assert peers.ethertype == number


@pytest.mark.parametrize(
    "text",
    ["", "88B5", "0x05FF", "0x10000", "-1", "0", "eth", "9" * 5000, " 0x88B5", "0x88_B5", "0b1", "٣٥٠٠٠"],
)
def test_what_is_no_ethertype_is_refused_with_its_value_and_the_rule(text):
    with pytest.raises(SettingError) as refused:
        PeerSettings.parse(True, ethertype=text)
    assert str(refused.value) == f"--ethertype {written(text)}: must be from 0x0600 to 0xFFFF, as 0x88B5 or decimal"


@pytest.mark.parametrize(
    ("text", "whose"),
    [("0x0800", "IPv4"), ("2054", "ARP"), ("0x86DD", "IPv6"), ("0x8100", "a VLAN tag"), ("0x88a8", "a VLAN tag")],
)
def test_an_ethertype_that_means_something_else_is_refused(text, whose):
    with pytest.raises(SettingError, match=f"^--ethertype {text}: is {whose}: must be one that nothing else"):
        PeerSettings.parse(True, ethertype=text)
