"""The demo's YAML shows what it is meant to show, and its endpoints are backends of the lab."""

from ipaddress import ip_address
from pathlib import Path

import pytest
import yaml

import speaker.lab
from speaker.lab.backends import read_expectations
from speaker.lab.topology import lab_topology
from speaker.model import Family, Protocol

MANIFESTS = Path(speaker.lab.__file__).parent / "manifests"


def test_the_demo_shows_what_the_issue_asks_for():
    wishes = read_expectations(MANIFESTS, lab_topology())
    assert len({wish.service for wish in wishes}) >= 5
    assert {wish.family for wish in wishes if wish.service == "shop/api"} == {Family.IPV4, Family.IPV6}
    assert {wish.protocol for wish in wishes if wish.service == "infra/syslog"} == {Protocol.UDP}
    assert {(wish.family, wish.protocol) for wish in wishes} == {
        (f, p) for f in Family for p in (Protocol.TCP, Protocol.UDP)
    }


def test_every_port_has_three_backends_one_of_them_not_behind_the_node():
    for wish in read_expectations(MANIFESTS, lab_topology()):
        assert wish.backends == {"pod1", "pod2", "host1"}, wish


def test_an_endpoint_that_is_nobody_in_the_lab_is_refused(tmp_path):
    for path in MANIFESTS.glob("web.yaml"):
        (tmp_path / path.name).write_text(path.read_text().replace("10.244.1.11", "10.244.9.9"))
    with pytest.raises(ValueError, match=r"10\.244\.9\.9 is no backend"):
        read_expectations(tmp_path, lab_topology())


def test_no_pool_offers_an_address_that_a_host_of_the_lab_has():
    hosts = {address for host in lab_topology(30).hosts for address in host.addresses}
    for pool in yaml.safe_load_all((MANIFESTS / "pools.yaml").read_text()):
        for offered in pool["spec"]["addresses"]:
            first, dash, last = offered.partition("-")
            if dash:
                assert not any(
                    ip_address(first) <= host <= ip_address(last)
                    for host in hosts
                    if host.version == ip_address(first).version
                )
