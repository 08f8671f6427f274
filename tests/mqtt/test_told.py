"""A real speaker tells a real broker: what is retained there is what is so, whichever of them goes and comes back."""

import json
import os
import signal

import pytest
from mqtt_manifests import EIP, manifests
from mqtt_schemas import mistakes

from speaker.ownership.hellos.keys import generate

OTHER = "198.51.100.11"
V1 = "eip-speaker/v1"
MQTT = ("--mqtt", "mqtt://127.0.0.1", "--forwarder", "none")


def truth(*eips, node="n1"):
    """Topics, and of those about EIPs who holds them."""
    return {
        f"{V1}/nodes/{node}": "up",
        f"{V1}/pools/lan": "lan",
        **{f"{V1}/eips/{eip}": node for eip in eips},
        **{f"{V1}/nodes/{node}/eips/{eip}": node for eip in eips},
    }


def brief(states):
    return {
        topic: told.get("state") or told.get("holder", told.get("node", told.get("pool")))
        for topic, told in states.items()
    }


def is_true(*eips, node="n1"):
    return lambda states: brief(states) == truth(*eips, node=node)


@pytest.fixture
def node(lan):
    return lan[0]


@pytest.fixture
def told(node, new_broker):
    """A broker that runs, and somebody who listens."""
    broker = new_broker(node)
    broker.start()
    return broker, broker.watch("eip-speaker/#")


def test_what_is_said_is_what_is_documented_with_what_mqtt_5_has_for_it(node, told, start, write):
    _, watcher = told
    write("a.yaml", manifests(EIP))
    speaker = start(node, *MQTT)
    taken = watcher.event("taken", eip=EIP)
    assert (taken["by"], taken["link"], taken["from"]) == ("n1", "eth0", None)
    watcher.until(is_true(EIP))
    write("b.yaml", manifests(pool="203.0.113.0/24").replace("lan", "dmz"))
    watcher.until(lambda states: f"{V1}/pools/dmz" in states)
    write("a.yaml", manifests(OTHER))
    watcher.event("released", addresses=[EIP])
    for message in watcher.heard:
        if message["payload"]:
            assert list(mistakes(message["topic"], message["payload"])) == []
            found = message["properties"]
            assert found["content-type"] == "application/json"
            assert found["user-properties"] == {"schema": "eip-speaker/v1", "by": "n1"}
            assert 0 < found["message-expiry-interval"] <= 3600
    assert "eip_speaker_mqtt_connected 1.0" in speaker.get("/metrics")


def test_a_speaker_that_stops_says_so_and_that_it_holds_nothing(node, told, start, write):
    broker, watcher = told
    write("a.yaml", manifests(EIP))
    speaker = start(node, *MQTT)
    watcher.until(is_true(EIP))
    assert speaker.stop() == 0
    stopped = {f"{V1}/nodes/n1": "stopped", f"{V1}/pools/lan": "lan", f"{V1}/eips/{EIP}": None}
    watcher.until(lambda states: brief(states) == stopped)
    assert brief(broker.retained("eip-speaker/#")) == stopped


def test_a_broker_that_is_back_has_the_truth_and_not_what_it_kept(node, told, start, write):
    broker, watcher = told
    write("a.yaml", manifests(EIP))
    speaker = start(node, *MQTT)
    watcher.until(is_true(EIP))
    broker.kill()
    speaker.until("edge failed", edge="mqtt")
    write("a.yaml", manifests(OTHER))
    speaker.until("claimed", eip=OTHER)
    while not (problems := [each for each in speaker.status()["problems"] if "mqtt" in each]):
        assert speaker.process.poll() is None
    (problem,) = problems
    assert "127.0.0.1:1883" in problem
    assert "eip_speaker_mqtt_connected 0.0" in speaker.get("/metrics")
    broker.start()
    broker.publish(f"{V1}/eips/{EIP}", '{"left": "behind"}', "-r")
    watcher = broker.watch("eip-speaker/#")
    speaker.until("edge recovered", edge="mqtt")
    watcher.until(is_true(OTHER))
    assert brief(broker.retained("eip-speaker/#")) == truth(OTHER)
    assert not [line for line in speaker.log if line["event"] == "internal error"]


def test_of_a_speaker_that_is_killed_the_broker_says_so_and_its_next_life_clears_what_is_left(node, told, start, write):
    broker, watcher = told
    write("a.yaml", manifests(EIP))
    speaker = start(node, *MQTT)
    watcher.until(is_true(EIP))
    speaker.process.send_signal(signal.SIGKILL)
    watcher.until(lambda states: states.get(f"{V1}/nodes/n1") == {"node": "n1", "state": "lost"})
    (will,) = [each for each in watcher.heard if '"lost"' in each["payload"]]
    assert list(mistakes(will["topic"], will["payload"])) == []
    write("a.yaml", manifests(OTHER))
    start(node, *MQTT, home="again")
    watcher.until(is_true(OTHER))
    assert brief(broker.retained("eip-speaker/#")) == truth(OTHER)


def test_what_others_write_into_topics_of_ours_is_cleared(node, told, start, write):
    broker, watcher = told
    for topic in ("eips/192.0.2.99", "nodes/n1/eips/192.0.2.99", "pools/none", "nodes/n2", "elsewhere"):
        broker.publish(f"{V1}/{topic}", '{"state": "not ours"}', "-r")
    write("a.yaml", manifests(EIP))
    start(node, *MQTT)
    others = {f"{V1}/nodes/n2": "not ours", f"{V1}/elsewhere": "not ours"}
    watcher.until(lambda states: brief(states) == truth(EIP) | others)
    broker.publish(f"{V1}/eips/192.0.2.98", '{"state": "later"}', "-r")
    watcher.until(lambda states: f"{V1}/eips/192.0.2.98" in states)
    watcher.until(lambda states: brief(states) == truth(EIP) | others)


def test_of_two_hosts_one_speaks_of_all_and_whoever_is_left_when_it_dies(lan, new_broker, start, write, tmp_path):
    one, other = lan
    broker = new_broker(other, "listener 1883 198.51.100.2", "allow_anonymous true", host="198.51.100.2")
    broker.start()
    watcher = broker.watch("eip-speaker/#")
    key = tmp_path / "key"
    key.write_text(generate(os.urandom(32)))
    key.chmod(0o600)
    write("a.yaml", manifests(EIP, OTHER))
    flags = ("--mqtt", "mqtt://198.51.100.2", "--forwarder", "none", "--with-peers", "--key", str(key))
    first = start(one, *flags, name="a1")
    watcher.until(lambda states: brief(states).get(f"{V1}/eips/{EIP}") == "a1")
    start(other, *flags, name="b1")
    watcher.event("node_up", by="b1", node="a1")
    watcher.until(lambda states: f"{V1}/nodes/b1" in states and f"{V1}/nodes/a1" in states)
    first.process.send_signal(signal.SIGKILL)
    taken = watcher.event("taken", by="b1", eip=EIP)
    assert taken["from"] == "a1"
    both = {f"{V1}/eips/{eip}": "b1" for eip in (EIP, OTHER)} | {f"{V1}/nodes/a1": "lost", f"{V1}/nodes/b1": "up"}
    watcher.until(lambda states: brief(states).items() >= both.items())
    said = [json.loads(each["payload"]) for each in watcher.heard if each["payload"]]
    assert [each["by"] for each in said if each.get("event") == "assigned"].count("b1") <= 2, "those that a1 spoke for"
