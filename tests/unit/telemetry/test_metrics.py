"""What /metrics serves: nothing that means nothing there, and all of it as Prometheus' conventions have it."""

import re
import shutil
import subprocess
from ipaddress import ip_address

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from speaker.allocator.assign import Outcome, Usage
from speaker.allocator.settle import given, tally
from speaker.cluster.lease import Leadership
from speaker.controller.run import ControllerMetrics
from speaker.errors import EdgeError
from speaker.layer2.answer import Ignored
from speaker.model import Family, Link, Mac, Traffic
from speaker.telemetry.metrics import Metrics, Total, exposition

EIP = "192.0.2.10"
ETH0 = Link(2, "eth0", Mac(b"\x02\0\0\0\0\x01"))
GIVEN = tally([given(Outcome(None))], {"lan": {Family.IPV4: Usage(10, 2, 1, (("shop", 2),))}})
WORDS = {
    "change": "claimed",
    "edge": "netlink",
    "resource": "services",
    "fate": "reset",
    "link": "eth0",
    "node": "n2",
    "outcome": "taken",
    "peer": "n2",
    "protocol": "arp",
    "reason": "waits",
    "result": "read",
    "state": "held",
    "task": "source",
}
"""For each label, one of its values."""


def node(*, api):
    """The text of a node of which every metric has a value."""
    metrics = Metrics(api=api, wire=1)
    for metric in vars(metrics).values():
        labels = getattr(metric, "_labelnames", ())
        if labels:
            metric.labels(*(WORDS[label] for label in labels))
    metrics.given.count(GIVEN)
    metrics.ignored.labels("ndp", Ignored.CONFLICT.value).inc(3)
    metrics.conflicts.labels("defended").inc()
    metrics.kube_proxy.info({"mode": "iptables"})
    metrics.of_eips.since, metrics.of_eips.endpoints, metrics.of_eips.answered = {EIP: 1e9}, {EIP: 2}, {EIP: 1}
    metrics.of_eips.conflicts, metrics.of_eips.unhealthy = {EIP: 1}, {(EIP, True): 2, (EIP, False): 1}
    traffic = exposition(Traffic({(EIP, "TCP", "80"): (1, 2, 3, 4, 5)}, {(EIP, "TCP", "80", "10.0.1.2:8080"): (1, 0)}))
    return (generate_latest(metrics.registry) + metrics.of_eips.text() + traffic).decode()


def controller():
    metrics = ControllerMetrics()
    metrics.counted(GIVEN, 3)
    metrics.took("PATCH", 0.02)
    metrics.internal_error("decide", ValueError("a"))
    return generate_latest(metrics.registry).decode()


SERVED = {
    "speaker run": lambda: node(api=False),
    "speaker agent": lambda: node(api=True),
    "speaker controller": controller,
}
ON = pytest.mark.parametrize("platform", SERVED)


def families(platform):
    return list(text_string_to_metric_families(SERVED[platform]()))


@ON
def test_promtool_finds_nothing_to_say(platform):
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("no promtool: apt-get install prometheus")
    ran = subprocess.run([promtool, "check", "metrics"], input=SERVED[platform](), text=True, capture_output=True)
    assert (ran.returncode, ran.stderr) == (0, "")


@ON
def test_every_name_says_what_it_is(platform):
    """https://prometheus.io/docs/practices/naming, where promtool cannot be had, and a little more than it asks."""
    for family in families(platform):
        names = {sample.name for sample in family.samples}
        assert family.documentation, family.name
        assert not any(name.endswith("_created") for name in names), family.name
        assert (family.type == "counter") == any(name.endswith("_total") for name in names), family.name
        assert family.name.startswith(("eip_speaker_", "process_")), family.name
        assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", family.name)
        assert not re.search(r"_(ms|milliseconds|minutes|hours|kb|percent|gauge|counter)(_|$)", family.name)


@ON
def test_no_label_mixes_words_and_addresses(platform):
    """``eip`` is an address everywhere, and nothing else is one."""
    for family in families(platform):
        for sample in family.samples:
            for label, value in sample.labels.items():
                assert _is_address(value) is (label == "eip"), (sample.name, label, value)


def _is_address(text):
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def test_what_is_decided_elsewhere_is_not_served():
    run, agent, leader = ({family.name for family in families(platform)} for platform in SERVED)
    decided = {"eip_speaker_services", "eip_speaker_services_refused", "eip_speaker_pool_namespace_full"}
    decided |= {f"eip_speaker_pool_addresses{end}" for end in ("", "_in_use", "_resting")}
    files = {"eip_speaker_manifests_valid", "eip_speaker_manifest_problems", "eip_speaker_endpoints_checked"}
    files |= {f"eip_speaker_endpoint_checks{end}" for end in ("", "_late")}
    assert run - agent == decided | files
    mirrored = {f"eip_speaker_{name}" for name in ("mirror_bytes", "mirror_room_bytes", "objects_without_room")}
    assert agent - run == {"eip_speaker_api_up", "eip_speaker_removals_waiting"} | mirrored
    assert decided <= leader


def test_a_replica_that_leads_no_more_says_nothing_of_what_was_given():
    metrics = ControllerMetrics()
    with metrics.leading(Leadership(1, "7")):
        metrics.counted(GIVEN, 3)
    found = generate_latest(metrics.registry).decode()
    assert "eip_speaker_services{" not in found
    assert "eip_speaker_pool_addresses{" not in found


def test_a_replica_that_leads_no_more_has_no_broker_to_tell():
    metrics = ControllerMetrics()
    with metrics.leading(Leadership(1, "7")):
        metrics.mqtt().waiting.set(3)
        metrics.broker_failed(EdgeError("mqtt broker.example:8883: refused"))
        assert metrics.problems() == ("mqtt broker.example:8883: refused",)
    assert metrics.problems() == ()
    assert metrics.registry.get_sample_value("eip_speaker_mqtt_waiting") == 0


def test_pools_that_are_gone_are_not_told_of_any_more():
    metrics = Metrics()
    metrics.given.count(GIVEN)
    assert (
        metrics.registry.get_sample_value("eip_speaker_pool_addresses_resting", {"pool": "lan", "family": "IPv4"}) == 1
    )
    metrics.given.count(tally([], {}))
    assert b"eip_speaker_pool_addresses{" not in generate_latest(metrics.registry)


def test_a_total_is_what_the_kernel_counted():
    registry = CollectorRegistry()
    total = Total("eip_speaker_martian_sources", "text", registry)
    total.set(7)
    assert registry.get_sample_value("eip_speaker_martian_sources_total") == 7


def test_of_what_is_not_known_of_an_eip_nothing_is_said():
    metrics = Metrics()
    metrics.of_eips.since = {EIP: 1.5}
    samples = [s for family in text_string_to_metric_families(metrics.of_eips.text().decode()) for s in family.samples]
    assert [(sample.name, sample.labels, sample.value) for sample in samples] == [
        ("eip_speaker_held_since_timestamp_seconds", {"eip": EIP}, 1.5)
    ]
