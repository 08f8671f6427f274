"""A wrong setting cannot exist: it is refused when built, with its value and its rule."""

import pytest

from speaker.errors import SettingError
from speaker.settings import Bind, Node


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
    "text", ["", "9900", ":9900", "localhost:9900", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:x"]
)
def test_a_metrics_address_that_cannot_work_is_refused_with_its_value(text):
    with pytest.raises(SettingError, match=r"must be ADDRESS:PORT") as refused:
        Bind.parse(text)
    assert repr(text) in str(refused.value)


def test_a_node_always_carries_its_hostname_label():
    assert Node.parse("n1", "rack=a,example.com/zone=b") == Node(
        "n1", {"kubernetes.io/hostname": "n1", "rack": "a", "example.com/zone": "b"}
    )


@pytest.mark.parametrize("name", ["", "Node", "n_1", "-n", "n" * 254])
def test_a_node_name_that_kubernetes_would_refuse_is_refused(name):
    with pytest.raises(SettingError, match="--node"):
        Node.parse(name)


@pytest.mark.parametrize("labels", ["rack", "=a", "rack=a b", "a b=c", "rack=-"])
def test_a_label_that_kubernetes_would_refuse_is_refused(labels):
    with pytest.raises(SettingError, match="--node-labels"):
        Node.parse("n1", labels)
