"""Services that have kube-proxy send an EIP elsewhere: found in whatever spelling kube-proxy reads, and named."""

import msgspec
import pytest

from speaker.api.kinds import ASSIGNED
from speaker.diagnosis.together import examination
from speaker.tools.agents import NamingObject, findings

EIP, SIX = "198.51.100.7", "2001:db8::7"


def service(name, *, external=(), ingress=(), ours=False, kind="ClusterIP"):
    conditions = [{"type": ASSIGNED, "status": "True"}] if ours else []
    status = {"loadBalancer": {"ingress": [{"ip": each} for each in ingress]}, "conditions": conditions}
    data = {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"type": kind, "externalIPs": list(external)},
        "status": status,
    }
    return msgspec.json.decode(msgspec.json.encode(data), type=NamingObject)


VICTIM = service("victim", ingress=[EIP, SIX], ours=True, kind="LoadBalancer")


@pytest.mark.parametrize(
    "spelling", [EIP, "198.051.100.007", f"::ffff:{EIP}", SIX, "2001:0db8:0::0007", "2001:DB8:0:0:0:0:0:7"]
)
def test_external_ips_that_are_another_services_eip_are_named_however_they_are_written(spelling):
    (found,) = findings([service("thief", external=["203.0.113.1", spelling]), VICTIM])
    assert found.kind == "external_ips"
    assert found.eip in (EIP, SIX)
    assert f"ns/thief lists {found.eip}, the EIP of ns/victim" in found.what
    assert "DenyServiceExternalIPs" in found.mend


def test_a_status_that_we_did_not_write_counts_as_well_and_ours_does_not():
    (found,) = findings([VICTIM, service("thief", ingress=[EIP], kind="LoadBalancer")])
    assert "the status of Service ns/thief has 198.51.100.7, the EIP of ns/victim" in found.what
    sharing = service("sharer", ingress=[EIP], ours=True)
    assert findings([VICTIM, sharing]) == []


def test_its_own_eip_is_told_too_as_its_source_ranges_do_not_hold_there():
    (found,) = findings([service("web", external=[EIP], ingress=[EIP], ours=True)])
    assert "its own EIP" in found.what


@pytest.mark.parametrize("external", [["203.0.113.1"], ["no address", "", "0", "::", "198.51.100.7.1", "0" * 5000]])
def test_what_is_nobodys_eip_is_no_finding(external):
    assert findings([service("other", external=external), VICTIM]) == []


def test_what_no_node_sees_is_among_what_is_found():
    beyond = findings([service("thief", external=[EIP]), VICTIM])
    whole = examination([], {}, beyond)
    assert [shared.finding for shared in whole.found] == beyond
    assert whole.code == 1
