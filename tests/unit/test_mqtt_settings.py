"""``--mqtt`` and its files: what a broker is, and that no password is ever on a command line, or shown."""

from pathlib import Path

import pytest

from speaker.errors import SettingError
from speaker.settings import MqttSettings

FILE = Path("/etc/speaker/x")


@pytest.mark.parametrize(
    ("url", "host", "port", "prefix", "tls"),
    [
        ("mqtts://broker.example", "broker.example", 8883, "eip-speaker", True),
        ("mqtts://broker.example/", "broker.example", 8883, "eip-speaker", True),
        ("mqtts://broker.example:8884/site/one", "broker.example", 8884, "site/one", True),
        ("mqtt://127.0.0.1", "127.0.0.1", 1883, "eip-speaker", False),
        ("mqtts://[2001:db8::1]:8883/x", "2001:db8::1", 8883, "x", True),
        ("mqtts://[fe80::1%eth0]", "fe80::1%eth0", 8883, "eip-speaker", True),
        ("mqtts://my_broker.namespace.svc.", "my_broker.namespace.svc.", 8883, "eip-speaker", True),
        ("mqtts://bröker.example", "bröker.example", 8883, "eip-speaker", True),
    ],
)
def test_a_broker_is_a_url(url, host, port, prefix, tls):
    found = MqttSettings.parse(url)
    assert (found.host, found.port, found.prefix, found.tls) == (host, port, prefix, tls)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "broker.example",
        "http://broker.example",
        "mqtts://",
        "mqtts://broker:0",
        "mqtts://broker:99999",
        "mqtts://broker:port",
        "mqtts://broker/a+b",
        "mqtts://broker/#",
        "mqtts://broker/a//b",
        "mqtts://broker/$SYS",
        "mqtts://broker/x?y=1",
        "mqtts://[broker/x",
        "mqtts://bro ker",
        "mqtts://one,two",
        "mqtts://bro..ker",
        "mqtts://-broker",
        "mqtts://bro\\ker",
        "mqtts://" + "b" * 64,
        "mqtts://" + "b." * 127 + "b",
    ],
)
def test_what_is_none_is_refused_with_the_rule(url):
    with pytest.raises(SettingError, match="must be mqtts://HOST"):
        MqttSettings.parse(url)


@pytest.mark.parametrize("url", ["mqtts://me:hunter2@broker", "mqtts://:hunter2@broker/x", "mqtts://hunter2@broker"])
def test_a_password_on_the_command_line_is_refused_and_not_shown(url):
    with pytest.raises(SettingError, match="--mqtt-login") as refusal:
        MqttSettings.parse(url)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"url": None, "ca": FILE}, "--mqtt-ca: needs --mqtt"),
        ({"url": None, "login": FILE}, "--mqtt-login: needs --mqtt"),
        ({"url": "mqtt://broker.example", "login": FILE}, "needs mqtts://"),
        ({"url": "mqtt://127.0.0.1", "cert": FILE}, "needs mqtts://"),
        ({"url": "mqtts://broker.example", "key": FILE}, "needs --mqtt-cert"),
    ],
)
def test_files_that_would_not_be_used_or_not_be_secret_are_refused(arguments, rule):
    with pytest.raises(SettingError, match=rule):
        MqttSettings.parse(**arguments)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_a_login_stays_on_this_host_without_tls(host):
    assert MqttSettings.parse(f"mqtt://{host}", login=FILE).login == FILE


def test_without_the_flag_there_is_no_broker():
    assert MqttSettings.parse(None) is None


@pytest.mark.parametrize(("host", "broker"), [("broker", "broker:8883"), ("[2001:db8::1]", "[2001:db8::1]:8883")])
def test_a_broker_is_named_as_in_a_url(host, broker):
    assert MqttSettings.parse(f"mqtts://{host}").broker == broker
