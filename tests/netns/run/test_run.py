"""``speaker run`` on a real kernel, from YAML to an answer on the wire."""

import shutil
import signal
import sys

import pytest
from site_yaml import POOL, service

pytestmark = pytest.mark.netns


def mac_of(sh, namespace) -> str:
    return sh(namespace, "ip -br link show eth0").split()[2]


def test_a_service_gets_an_eip_and_arping_finds_it_at_the_nodes_mac(lan, write, start, sh):
    node, client = lan
    write("site.yaml", POOL + service("web"))
    speaker = start(node)
    speaker.until("ready")
    assert speaker.status()["eips"][0]["address"] == "198.51.100.10"
    assert mac_of(sh, node) in sh(client, "arping -C 1 -c 60 -w 60 -i eth0 198.51.100.10")


def test_a_bad_edit_keeps_the_last_good_state_and_shows_in_log_metric_and_health(lan, write, start, sh):
    node, client = lan
    write("site.yaml", POOL + service("web"))
    speaker = start(node)
    speaker.until("ready")
    assert "eip_speaker_manifests_valid 1.0" in speaker.get("/metrics")
    write("site.yaml", POOL.replace("198.51.100.10-198.51.100.19", "198.51.100.300") + service("web"))
    bad = speaker.until("bad manifest")
    assert "site.yaml:4" in bad["problem"]
    assert "198.51.100.300" in bad["problem"]
    assert "eip_speaker_manifests_valid 0.0" in speaker.get("/metrics")
    assert "198.51.100.300" in speaker.get("/healthz")
    assert "1 packets received" in sh(client, "arping -C 1 -c 60 -w 60 -i eth0 198.51.100.10")
    write("site.yaml", POOL + service("web") + service("api"))
    speaker.until("claimed", eip="198.51.100.11")
    assert "eip_speaker_manifests_valid 1.0" in speaker.get("/metrics")


def test_a_restart_gives_the_same_addresses_whatever_the_order_of_the_files(lan, write, start):
    node, _ = lan
    write("b.yaml", POOL + service("zebra"))
    first = start(node)
    first.until("claimed", eip="198.51.100.10")
    write("a.yaml", service("ant"))
    first.until("claimed", eip="198.51.100.11")
    first.stop(signal.SIGKILL)
    second = start(node)
    second.until("ready")
    assert {eip["services"][0]: eip["address"] for eip in second.status()["eips"]} == {
        "default/zebra": "198.51.100.10",
        "default/ant": "198.51.100.11",
    }


DUAL_STACK = """
apiVersion: eip-speaker.io/v1alpha1
kind: Eip
metadata: {name: lan}
spec: {addresses: [198.51.100.%d-198.51.100.19, "2001:db8::%d-2001:db8::19"], interface: eth0}
"""


def test_a_pool_shrunk_under_a_dual_stack_service_ends_no_speaker_and_no_start(lan, write, start, sh, tmp_path):
    node, client = lan
    web = service("web", "ipFamilyPolicy: RequireDualStack")
    write("site.yaml", DUAL_STACK % (10, 10) + web)
    first = start(node)
    first.until("ready")
    write("site.yaml", DUAL_STACK % (15, 15) + web)
    first.until("flagged", eip="default/web 2001:db8::10")
    write("site.yaml", DUAL_STACK % (15, 15) + web + service("api"))
    first.until("claimed", eip="198.51.100.15")
    assert first.stop() == 0
    state = f"--state {tmp_path}/state.json --runtime-dir {tmp_path}/run --forwarder nftables"
    said = sh(node, f"{sys.executable} -m speaker run {tmp_path}/manifests --dry-run {state}")
    assert "198.51.100.10  default/web  (pool lan): would be claimed on eth0" in said
    second = start(node)
    second.until("ready")
    assert "1 packets received" in sh(client, "arping -C 1 -c 60 -w 60 -i eth0 198.51.100.10")


def test_a_service_that_goes_is_silent_on_the_wire(lan, write, start, sh):
    node, client = lan
    write("site.yaml", POOL + service("web") + service("api"))
    speaker = start(node)
    speaker.until("ready")
    write("site.yaml", POOL + service("api"))
    speaker.until("withdrawn", eip="198.51.100.11")
    assert "0 packets received" in sh(client, "arping -c 1 -w 1 -i eth0 198.51.100.11", check=False)


def test_sigterm_stops_the_answers_and_exits_0(lan, write, start, sh):
    node, client = lan
    write("site.yaml", POOL + service("web"))
    speaker = start(node)
    speaker.until("ready")
    assert speaker.stop() == 0
    assert speaker.log[-1]["event"] == "stopped"
    assert "0 packets received" in sh(client, "arping -c 1 -w 1 -i eth0 198.51.100.10", check=False)


def test_a_link_that_is_recreated_is_spoken_on_again(lan, write, start, sh, wire):
    node, client = lan
    write("site.yaml", POOL + service("web"))
    speaker = start(node)
    speaker.until("ready")
    sh(node, "ip link del eth0")
    speaker.until("not claimed", eip="198.51.100.10")
    wire(node, "eth0", client, "eth0")
    sh(client, "ip addr add 198.51.100.2/24 dev eth0")
    speaker.until("claimed", eip="198.51.100.10")
    assert mac_of(sh, node) in sh(client, "arping -C 1 -c 60 -w 60 -i eth0 198.51.100.10")


def test_what_is_wrong_is_refused_with_a_reason_and_everything_else_is_served(lan, write, start):
    node, _ = lan
    write("site.yaml", POOL + service("web", "loadBalancerIP: 203.0.113.9") + service("api"))
    speaker = start(node)
    speaker.until("ready")
    status = speaker.status()
    assert [eip["services"] for eip in status["eips"]] == [["default/api"]]
    assert status["refused"][0]["reason"] == "address_not_in_pool"
    assert 'eip_speaker_services_refused{reason="address_not_in_pool"} 1.0' in speaker.get("/metrics")


def test_a_corrupt_state_file_is_refused_rather_than_forgotten(lan, write, start, tmp_path):
    node, _ = lan
    write("site.yaml", POOL + service("web"))
    (tmp_path / "state.json").write_text('{"version": 1, "held": [')
    speaker = start(node)
    assert speaker.process.wait(60) == 1


def test_an_edge_that_fails_is_tried_again_while_everything_that_worked_goes_on(lan, write, start, sh, tmp_path):
    node, client = lan
    write("site.yaml", POOL + service("web"))
    speaker = start(node)
    speaker.until("ready")
    state = tmp_path / "state.json"
    state.unlink()
    state.mkdir()  # nothing can be remembered now, so nothing new may be given
    write("site.yaml", POOL + service("web") + service("api"))
    assert "state.json" in speaker.until("edge failed", edge="state file")["error"]
    assert "1 packets received" in sh(client, "arping -C 1 -c 60 -w 60 -i eth0 198.51.100.10")
    assert "0 packets received" in sh(client, "arping -c 1 -w 1 -i eth0 198.51.100.11", check=False)
    assert 'eip_speaker_edge_errors_total{edge="state file"}' in speaker.get("/metrics")
    assert "state.json" in speaker.get("/healthz")
    state.rmdir()
    speaker.until("edge recovered", edge="state file")
    speaker.until("claimed", eip="198.51.100.11")


def test_a_dry_run_says_what_would_happen_and_changes_nothing(lan, write, sh, tmp_path):
    node, client = lan
    write("site.yaml", POOL + service("web"))
    state = f"--state {tmp_path}/state.json --runtime-dir {tmp_path}/run --forwarder nftables"
    before = sh(node, "nft list ruleset")
    said = sh(node, f"{sys.executable} -m speaker run {tmp_path}/manifests --dry-run {state}")
    assert "198.51.100.10  default/web  (pool lan): would be claimed on eth0" in said
    assert "+ TCP 198.51.100.10:80 rr" in said
    assert sh(node, "nft list ruleset") == before
    assert not (tmp_path / "state.json").exists()
    assert "0 packets received" in sh(client, "arping -c 1 -w 1 -i eth0 198.51.100.10", check=False)


def test_a_dry_run_says_what_a_start_would_wait_for(lan, sh, tmp_path):
    node, _ = lan
    (tmp_path / "manifests").mkdir()
    (tmp_path / "state.json").write_text(
        '{"version":1,"ledger":{"held":[{"service":{"namespace":"default","name":"web"},'
        '"addresses":["198.51.100.10"],"pools":["lan"]}]}}'
    )
    state = f"--state {tmp_path}/state.json --runtime-dir {tmp_path}/run --forwarder none"
    said = sh(node, f"{sys.executable} -m speaker run {tmp_path}/manifests --dry-run {state}", check=False)
    assert "has no manifests, while the state file remembers Services" in said
    peers = f"--with-peers --key {tmp_path}/key {state}"
    said = sh(node, f"{sys.executable} -m speaker run {tmp_path}/manifests --dry-run {peers}", check=False)
    assert "make one with `speaker keygen" in said, "as a start without --dry-run would say"


def test_metrics_on_every_address_of_the_node_are_not_on_its_eips(lan, write, start, sh):
    node, client = lan
    write("site.yaml", POOL + service("web"))
    speaker = start(node, "--metrics", "0.0.0.0:9900")
    speaker.until("ready")
    assert "200" in sh(client, "curl -s -o /dev/null -w %{http_code} --max-time 60 http://198.51.100.1:9900/metrics")
    refused = sh(client, "curl -sS --max-time 5 http://198.51.100.10:9900/metrics", check=False)
    assert "onnection refused" in refused or "Could not connect" in refused or "Failed to connect" in refused


def test_source_ranges_that_nobody_enforces_are_said_so(lan, write, start):
    node, _ = lan
    write("site.yaml", POOL + service("web", "loadBalancerSourceRanges: [192.0.2.0/24]"))
    speaker = start(node, "--forwarder", "none")
    assert "192.0.2.0/24" in speaker.until("approximation")["message"]


def test_a_second_speaker_on_the_same_host_is_refused(lan, write, start):
    node, _ = lan
    write("site.yaml", POOL + service("web"))
    start(node).until("started")
    second = start(node, "--metrics", "off")
    assert second.process.wait(60) == 1
    assert second.process.stderr is not None
    assert "another speaker is already running here" in second.process.stderr.read()


def test_a_second_speaker_with_another_runtime_directory_does_not_write_over_the_state_of_the_first(
    lan, write, start, tmp_path
):
    node, _ = lan
    write("site.yaml", POOL + service("web"))
    start(node).until("ready")
    before = (tmp_path / "state.json").read_bytes()
    second = start(node, "--metrics", "off", "--forwarder", "none", "--runtime-dir", str(tmp_path / "other"))
    assert second.process.wait(60) == 1
    assert f"speaker: state file {tmp_path}/state.json: another speaker has it" in second.last_words()
    assert (tmp_path / "state.json").read_bytes() == before


def test_a_runtime_directory_that_is_removed_comes_back_with_its_control_socket_and_its_lock(lan, write, start, sh):
    node, client = lan
    write("site.yaml", POOL + service("web"))
    speaker = start(node)
    speaker.until("ready")
    shutil.rmtree(directory := speaker.directory / "run")
    with speaker.patience():
        while not ((directory / "control").is_socket() and (directory / "lock").is_file()):
            assert speaker.process.poll() is None
    second = start(node, "--metrics", "off")
    assert second.process.wait(60) == 1
    assert "another speaker is already running here" in second.last_words()
    assert "1 packets received" in sh(client, "arping -C 1 -c 60 -w 60 -i eth0 198.51.100.10")


def test_metrics_that_cannot_listen_stop_the_start_before_anything_is_touched(lan, write, start, sh):
    node, _ = lan
    write("site.yaml", POOL + service("web"))
    speaker = start(node, "--metrics", "203.0.113.1:9900")
    assert speaker.process.wait(60) == 2
    assert sh(node, "nft list ruleset") == ""


def test_another_forwarders_leftovers_are_removed(lan, write, start, sh):
    node, _ = lan
    write("site.yaml", POOL + service("web"))
    first = start(node, "--forwarder", "nftables")
    first.until("ready")
    first.stop()
    assert "table inet eip-speaker" in sh(node, "nft list tables")
    second = start(node, "--forwarder", "none")
    second.until("ready")
    assert sh(node, "nft list tables") == ""


def test_a_pool_that_is_removed_while_in_use_keeps_its_eips_on_the_air_by_its_own_rules_also_after_a_restart(
    lan, write, start, sh
):
    node, client = lan
    write("pool.yaml", POOL.replace("198.51.100.10-198.51.100.19", "203.0.113.10"))
    write("site.yaml", service("web"))
    speaker = start(node)
    speaker.until("ready")
    write("pool.yaml", "")
    speaker.until("flagged")
    assert "1 packets received" in sh(client, "arping -C 1 -c 60 -w 60 -i eth0 203.0.113.10")
    speaker.stop()
    again = start(node)
    again.until("claimed", eip="203.0.113.10", link="eth0")
    assert not [entry for entry in again.log if entry["event"] == "not claimed"]


def test_an_address_of_the_host_itself_is_nobodys_eip_for_as_long_as_the_host_has_it(lan, write, start, sh):
    node, _ = lan
    pool = POOL.replace("198.51.100.10-198.51.100.19", '198.51.100.1", "198.51.100.10')
    write("site.yaml", pool.replace("[1", '["1').replace("10]", '10"]') + service("web"))
    write("wants.yaml", service("wants", "loadBalancerIP: 198.51.100.1"))
    speaker = start(node)
    told = speaker.until("refused", service="default/wants", reason="host_address")
    assert "this host (eth0)" in told["message"]
    speaker.until("claimed", eip="198.51.100.10")
    sh(node, "ip addr add 198.51.100.10/32 dev eth0")
    speaker.until("refused", service="default/web", reason="host_address")
    speaker.until("withdrawn", eip="198.51.100.10")
    sh(node, "ip addr del 198.51.100.10/32 dev eth0")
    speaker.until("claimed", eip="198.51.100.10")
