"""``speaker run`` beside a stand-in for kube-proxy, whose kernel state is real: what it sees and misses."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.netns

EIP = "198.51.100.70"

# Tables and maps as Kubernetes 1.36 makes them (pkg/proxy/nftables/proxier.go).
NFT = """
table ip kube-proxy {
  comment "rules for kube-proxy"
  map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
  map no-endpoint-services { type ipv4_addr . inet_proto . inet_service : verdict; }
  chain reject-chain { reject; }
  chain services { ip daddr . meta l4proto . th dport vmap @service-ips; }
  chain external-AAAA { return; }
}
table ip6 kube-proxy {
  map service-ips { type ipv6_addr . inet_proto . inet_service : verdict; }
  map no-endpoint-services { type ipv6_addr . inet_proto . inet_service : verdict; }
}
"""
FORWARDED = f"add element ip kube-proxy service-ips {{ {EIP} . tcp . 80 : goto external-AAAA }}"
REJECTED = (
    f'add element ip kube-proxy no-endpoint-services {{ {EIP} . tcp . 80 comment "default/web" : goto reject-chain }}'
)


def nft(node, *lines: str) -> None:
    with node.entered():
        subprocess.run(["nft", "-f", "-"], input="\n".join(lines), text=True, check=True)


def heard(speaker, event: str) -> dict:
    """The first such line, whether it came already or is yet to come."""
    return next((line for line in speaker.log if line["event"] == event), None) or speaker.until(event)


@pytest.mark.parametrize("element", [FORWARDED, REJECTED], ids=["forwarded", "rejected"])
def test_nftables_mode_with_rules_for_the_eip_is_all_right(node, kube_proxy, site, write, start, sh, tmp_path, element):
    nft(node, NFT, element)
    kube_proxy(node, "nftables")
    write("site.yaml", site())
    speaker = start(node, "--forwarder", "none")
    speaker.until("ready")
    seen = heard(speaker, "kube-proxy")
    assert (seen["mode"], seen["notes"]) == ("nftables", [])
    assert "eip_speaker_eips_without_rules 0.0" in speaker.get("/metrics")
    assert 'eip_speaker_kube_proxy_info{mode="nftables"} 1.0' in speaker.get("/metrics")
    told = sh(node, f"{sys.executable} -m speaker status --runtime-dir {tmp_path}/run")
    assert "kube-proxy: nftables (its port 10249 says so; port 10256 answers)\n" in told
    assert "no rules" not in told


def test_an_eip_without_rules_is_a_problem_until_they_come(node, kube_proxy, site, write, start):
    nft(node, NFT)
    kube_proxy(node, "nftables")
    write("site.yaml", site())
    speaker = start(node, "--forwarder", "none")
    assert speaker.until("problem")["message"].startswith(f"{EIP}: kube-proxy (nftables mode) has no rules")
    assert "eip_speaker_eips_without_rules 1.0" in speaker.get("/metrics")
    assert f"{EIP}: kube-proxy" in speaker.get("/healthz")
    assert speaker.status()["eips"][0]["claimed"]  # nothing is withdrawn for it


def test_without_net_admin_it_says_that_it_cannot_tell(node, kube_proxy, site, write, tmp_path):
    nft(node, NFT)
    kube_proxy(node, "nftables")
    write("site.yaml", site())
    command = f"timeout 60 setpriv --bounding-set -net_admin --inh-caps -net_admin {sys.executable} -m speaker run"
    flags = f"{tmp_path}/manifests --node n1 --forwarder none --state {tmp_path}/state --runtime-dir {tmp_path}/run"
    with node.entered():
        speaker = subprocess.Popen(
            [*command.split(), *flags.split(), "--log-format", "json"], stderr=subprocess.PIPE, text=True
        )
    with speaker:
        assert speaker.stderr is not None
        seen = next(entry for entry in map(json.loads, speaker.stderr) if entry["event"] == "kube-proxy")
        speaker.terminate()
    assert seen["mode"] == "nftables"
    assert seen["notes"] == ["cannot tell whether there are rules for the EIPs: needs NET_ADMIN"]


@pytest.mark.parametrize("iptables", ["iptables-nft", "iptables-legacy"])
def test_iptables_mode_is_known_by_its_chains_alone(node, site, write, start, sh, iptables):
    sh(node, f"{iptables} -t nat -N KUBE-SERVICES")
    sh(node, f"{iptables} -t nat -A KUBE-SERVICES -d {EIP}/32 -p tcp -m tcp --dport 80 -j ACCEPT")
    write("site.yaml", site())
    speaker = start(node, "--forwarder", "none")
    speaker.until("ready")
    seen = heard(speaker, "kube-proxy")
    assert (seen["mode"], seen["evidence"]) == ("iptables", ["iptables chain KUBE-SERVICES"])
    assert "eip_speaker_eips_without_rules 0.0" in speaker.get("/metrics")
    sh(node, f"{iptables} -t nat -F KUBE-SERVICES")
    assert EIP in speaker.until("problem")["message"]


def test_ipvs_mode_is_known_by_its_link_and_what_is_bound_there(node, site, write, start, sh):
    # A bridge stands in for a dummy, which this kernel may lack.
    sh(node, "ip link add kube-ipvs0 type bridge")
    sh(node, f"ip addr add {EIP}/32 dev kube-ipvs0")
    write("site.yaml", site())
    speaker = start(node, "--forwarder", "none")
    assert "strictARP: true" in speaker.until("problem")["message"]
    assert "eip_speaker_eips_without_rules 0.0" in speaker.get("/metrics")
    node.sysctl("net.ipv4.conf.all.arp_ignore", 1)
    sh(node, "ip addr flush dev kube-ipvs0")
    assert speaker.until("problem")["message"].startswith(f"{EIP}: kube-proxy (ipvs mode) has no rules")
    assert "strictARP" not in speaker.get("/healthz")


def test_kube_proxy_that_falls_silent_is_missed(node, kube_proxy, site, write, start):
    nft(node, NFT, FORWARDED)
    stand_in = kube_proxy(node, "nftables")
    write("site.yaml", site())
    speaker = start(node, "--forwarder", "none")
    speaker.until("kube-proxy")
    stand_in.pages["/healthz"] = 503, b'{"healthy": false}'
    assert "unhealthy" in speaker.until("problem")["message"]
    stand_in.close()
    assert "nothing answers on port 10256" in speaker.until("problem")["message"]


def test_rules_for_an_eip_that_the_speaker_forwards_are_in_its_way(node, kube_proxy, site, write, start):
    nft(node, NFT, FORWARDED)
    kube_proxy(node, "nftables")
    write("site.yaml", site())
    speaker = start(node, "--forwarder", "nftables")
    assert "takes the packets before us" in speaker.until("problem")["message"]


def test_nobody_there_is_nothing_to_complain_about(node, site, write, start):
    write("site.yaml", site())
    speaker = start(node, "--forwarder", "nftables")
    seen = speaker.until("kube-proxy")
    assert (seen["mode"], seen["evidence"], seen["notes"]) == ("none", [], [])
    assert "eip_speaker_eips_without_rules NaN" in speaker.get("/metrics")


def test_a_table_that_is_not_as_kube_proxy_makes_it_tells_nothing(node, kube_proxy, site, write, start):
    nft(node, "table ip kube-proxy { chain services { accept; }; }")
    kube_proxy(node, "nftables")
    write("site.yaml", site())
    (note,) = start(node, "--forwarder", "none").until("kube-proxy")["notes"]
    assert "there is no map service-ips" in note


@pytest.mark.parametrize("mode", ["nftables", "iptables", "ipvs"])
def test_once_kube_proxy_is_dead_and_its_rules_are_gone_there_are_none(node, kube_proxy, site, write, start, sh, mode):
    """Not: nobody can tell."""
    match mode:
        case "nftables":
            nft(node, NFT, FORWARDED)
        case "iptables":
            sh(node, "iptables -t nat -N KUBE-SERVICES")
            sh(node, f"iptables -t nat -A KUBE-SERVICES -d {EIP}/32 -p tcp -m tcp --dport 80 -j ACCEPT")
        case "ipvs":
            sh(node, "ip link add kube-ipvs0 type bridge")
            sh(node, f"ip addr add {EIP}/32 dev kube-ipvs0")
    stand_in = kube_proxy(node, mode)
    write("site.yaml", site())
    speaker = start(node, "--forwarder", "none")
    speaker.until("ready")
    heard(speaker, "kube-proxy")
    assert "eip_speaker_eips_without_rules 0.0" in speaker.get("/metrics")
    stand_in.close()
    if mode == "ipvs":
        sh(node, "ip link del kube-ipvs0")
    else:
        nft(node, "flush ruleset")
    until = f"{EIP}: kube-proxy ({mode} mode) has no rules"
    while not speaker.until("problem")["message"].startswith(until):
        pass
