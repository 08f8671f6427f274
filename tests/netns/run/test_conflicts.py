"""An EIP that another host already uses."""

import pytest
from site_yaml import POOL, service

pytestmark = pytest.mark.netns

SITE = POOL + service("web")


def test_an_address_somebody_uses_is_not_taken_from_him_and_the_operator_is_told_whose_it_is(lan, write, start, sh):
    node, other = lan
    sh(other, "ip addr add 198.51.100.10/24 dev eth0")
    mac = sh(other, "ip -br link show eth0").split()[2]
    write("site.yaml", SITE)
    speaker = start(node)
    told = speaker.until("conflict", eip="198.51.100.10")
    assert told["mac"] == mac
    assert told["held"] is False
    assert 'eip_speaker_conflicts_total{fate="not_answered"} 1.0' in speaker.get("/metrics")
    sh(other, "ip addr del 198.51.100.10/24 dev eth0")
    assert "0 packets received" in sh(other, "arping -c 1 -w 1 -i eth0 198.51.100.10", check=False)


def test_one_who_comes_later_is_told_of_and_gets_nothing(lan, write, start, sh):
    node, other = lan
    write("site.yaml", SITE)
    speaker = start(node)
    speaker.until("ready")
    ours = sh(node, "ip -br link show eth0").split()[2]
    while "1 packets received" not in sh(other, "arping -c 1 -w 1 -i eth0 198.51.100.10", check=False):
        pass  # it is still probed for
    sh(other, "arping -c 1 -w 1 -i eth0 -S 198.51.100.10 198.51.100.10", check=False)
    told = speaker.until("conflict", eip="198.51.100.10")
    assert told["held"] is True
    assert ours in sh(other, "arping -C 1 -c 60 -w 60 -i eth0 198.51.100.10")
