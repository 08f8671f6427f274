"""A node is killed: log, metric, broker and browser tell of it with one duration. Of Events: tests/agents."""

import os
import signal

import pytest
from chromium import chromium, missing
from mqtt_manifests import EIP, manifests

from speaker.ownership.hellos.keys import generate

OTHER = "198.51.100.11"
METRIC = "eip_speaker_failover_seconds"


def sample(text, name):
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name} "))


def test_a_failover_has_one_duration_in_log_metric_broker_and_browser(lan, new_broker, start, write, tmp_path):
    if reason := missing():
        pytest.skip(reason)
    one, other = lan
    broker = new_broker(other, "listener 1883 198.51.100.2", "allow_anonymous true", host="198.51.100.2")
    broker.start()
    watcher = broker.watch("eip-speaker/#")
    (key := tmp_path / "key").touch(mode=0o600)
    key.write_text(generate(os.urandom(32)))
    write("a.yaml", manifests(EIP, OTHER))
    flags = ("--mqtt", "mqtt://198.51.100.2", "--forwarder", "none", "--with-peers", "--key", str(key))
    victim = start(one, *flags, name="a1")
    victim.until("ready")
    heir = start(other, *flags, "--page", "127.0.0.1:9901", name="b1")
    heir.until("peer heard", peer="a1")
    heir.until("ready")
    with chromium(tmp_path / "chromium", other.entered) as browser:
        browser.open("http://127.0.0.1:9901/")
        browser.until("document.getElementById('eips').ariaRowCount === '3'")
        assert browser.text("#failovers").startswith("None since")
        victim.process.send_signal(signal.SIGKILL)
        logged = {}
        while logged.keys() != {EIP, OTHER}:
            line = heir.until("claimed")
            logged[line["eip"]] = line.get("unanswered")
        if None in logged.values():
            pytest.skip("the heir stood still meanwhile: nobody knows how long it took")
        browser.until("document.querySelector('#failovers .took')")
        holders = "[...document.querySelectorAll('#rows [role=cell]:nth-child(2)')].map((each) => each.textContent)"
        browser.until(f"{holders}.length === 2 && {holders}.every((each) => each === 'b1')")
        fetched = "fetch('status.json').then((answer) => answer.json()).then(arguments[arguments.length - 1])"
        shown = browser.run_async(fetched)["failovers"]
        took = browser.text("#failovers .took")
        assert browser.console() == []
        assert browser.accessibility() == []
    told = {eip: watcher.event("taken", by="b1", eip=eip) for eip in logged}
    text = heir.get("/metrics")
    assert {eip: each["unanswered"] for eip, each in told.items()} == logged
    assert {(each["why"], each["from"]) for each in told.values()} == {("silent", "a1")}
    assert sample(text, f"{METRIC}_count") == 2
    assert sample(text, f"{METRIC}_sum") == pytest.approx(sum(logged.values()), abs=1e-6)
    (of_both,) = shown
    assert (of_both["from"], of_both["to"], of_both["count"]) == ("a1", "b1", 2)
    assert of_both["unanswered"] == [min(logged.values()), max(logged.values())]
    assert took.endswith(f"{max(logged.values()):.3f} s")
