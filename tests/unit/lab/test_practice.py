"""The faults to practise: what the table says can be played."""

from speaker.checks import KINDS
from speaker.lab.practice_ground import EIPS, service, site, written
from speaker.lab.practice_table import FAULTS
from speaker.lab.request import practice
from speaker.standalone.manifests import load


def test_every_fault_has_a_name_of_its_own_and_names_a_kind_of_finding():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 36
    assert {fault.kind for fault in FAULTS} <= KINDS.keys()


def test_the_site_is_right_and_every_service_names_its_address_as_several_hosts_must(tmp_path):
    (tmp_path / "site.yaml").write_text(written(site()))
    world = load(tmp_path, named=True).world
    assert sorted(str(address) for each in world.services.values() for address in each.addresses) == sorted(EIPS)


def test_what_a_fault_changes_is_a_copy():
    changed = site()
    changed.update(service("more", None))
    changed["lan"]["spec"]["addresses"].clear()
    assert site()["lan"]["spec"]["addresses"]
    assert "svc/more" not in site()


def test_a_practice_has_two_nodes_and_a_stranger():
    request = practice("no_endpoint")
    assert (request.nodes, request.clients, request.fault) == (2, 2, "no_endpoint")
