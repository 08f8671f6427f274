"""What stands in the statuses is held; of what stands there twice the older Service keeps it."""

from ipaddress import ip_address

import pytest
from msgspec.structs import replace

from speaker.allocator.choose import MAX_SHARING
from speaker.allocator.pools import Catalogue
from speaker.api.kinds import ASSIGNED, ASSIGNED_FROM
from speaker.api.reading import read_pool, read_service
from speaker.api.service import MAX_HELD
from speaker.controller.restore import missing, restored
from speaker.model import ServiceKey

MARK = {"type": ASSIGNED, "status": "True", "reason": "Assigned", "message": ""}


@pytest.fixture
def restore(eip_object):
    lan = eip_object("lan", "192.0.2.10-192.0.2.20", "2001:db8::10-2001:db8::20")
    closed = eip_object("closed", "198.51.100.1", disabled=True)
    catalogue = Catalogue({"lan": read_pool(lan), "closed": read_pool(closed)})

    def run(*services):
        return restored([(each, read_service(each, default_class=False)) for each in services], catalogue)

    return run


def held(was):
    return {entry.service.name: (entry.addresses, entry.pools) for entry in was.ledger.held}


def test_both_families_of_a_service(restore, service_object):
    was = restore(service_object("web", ingress=["2001:db8::10", "192.0.2.10"]))
    assert held(was) == {"web": (("2001:db8::10", "192.0.2.10"), ("lan", "lan"))}


@pytest.mark.parametrize(
    ("announced", "counted", "found"),
    [
        ((), 0, (0, 0, 3)),
        (("192.0.2.10", "192.0.2.11", "2001-0db8-0000-0000-0000-0000-0000-0010"), 3, (0, 3, 3)),
        (("192.0.2.10", "192.0.2.12"), 3, (1, 3, 3)),
        ((), 9, (6, 9, 3)),
    ],
)
def test_what_announcements_and_pools_say_is_in_use_is_compared_with_statuses_and_annotations(
    service_object, announced, counted, found
):
    web = service_object("web", ingress=["192.0.2.10", "2001:db8::10"])
    dns = service_object("dns", annotations={"record": "192.0.2.10,192.0.2.11"})
    assert missing([web, dns], announced, counted) == found


def recorded(said):
    return {"type": ASSIGNED_FROM, "status": "True", "reason": "Recorded", "message": said}


@pytest.mark.parametrize(
    ("said", "pools"),
    [
        ("IPv4 from wan, IPv6 from six", ("six", "wan")),
        ("IPv4 from wan", ("lan", "wan")),
        ("somewhere", ("lan", "lan")),
        ("", ("lan", "lan")),
    ],
)
def test_the_pool_is_the_one_that_was_recorded_or_else_the_one_that_has_the_address(
    restore, service_object, said, pools
):
    conditions = [MARK, recorded(said)]
    was = restore(service_object("web", ingress=["2001:db8::10", "192.0.2.10"], conditions=conditions))
    assert held(was) == {"web": (("2001:db8::10", "192.0.2.10"), pools)}


def test_all_addresses_of_a_family_that_we_gave_and_of_anothers_no_more_than_are_asked_for(restore, service_object):
    both = ["192.0.2.11", "198.51.100.1"]
    ours = service_object("ours", ingress=both, conditions=[MARK, recorded("IPv4 from wan and closed")])
    assert held(restore(ours)) == {"ours": (tuple(both), ("wan", "closed"))}
    assert held(restore(service_object("theirs", ingress=both))) == {"theirs": (("192.0.2.11",), ("lan",))}
    asks = {"pool": "lan,closed"}
    assert held(restore(service_object("asks", ingress=both, annotations=asks))) == {
        "asks": (tuple(both), ("lan", "closed"))
    }


def test_of_an_annotation_no_more_places_count_than_are_asked_for(restore, service_object):
    said = {"record": "192.0.2.11,192.0.2.12,192.0.2.13"}
    assert held(restore(service_object("one", annotations=said)))["one"][0] == ("192.0.2.11",)
    named = {**said, "addresses": "192.0.2.12,192.0.2.13"}
    assert held(restore(service_object("two", annotations=named)))["two"][0] == ("192.0.2.11", "192.0.2.12")


def test_a_place_that_is_kept_is_in_the_pool_of_those_who_are_served_there(restore, service_object):
    sharing = {"share": "dns"}
    served = service_object(
        "served", age=1, ingress=["192.0.2.10"], conditions=[MARK, recorded("IPv4 from wan")], annotations=sharing
    )
    kept = service_object("kept", age=2, annotations={**sharing, "record": "192.0.2.10"})
    assert held(restore(served, kept)) == {
        "served": (("192.0.2.10",), ("wan",)),
        "kept": (("192.0.2.10",), ("wan",)),
    }


@pytest.mark.parametrize("names", [("older", "younger"), ("younger", "older")])
def test_the_older_of_two_keeps_a_duplicate(restore, service_object, names):
    services = [service_object(name, age=int(name == "older"), ingress=["192.0.2.10"]) for name in names]
    was = restore(*services)
    assert held(was) == {"older": (("192.0.2.10",), ("lan",))}
    (duplicate,) = was.duplicates
    assert (duplicate.loser.name, duplicate.keeper, duplicate.address) == (
        "younger",
        ServiceKey("default", "older"),
        ip_address("192.0.2.10"),
    )


def test_what_we_gave_is_taken_from_nobody_by_what_another_controller_gave_an_older_one(restore, service_object):
    was = restore(
        service_object("theirs-until-now", age=1, ingress=["192.0.2.10"]),
        service_object("ours", ingress=["192.0.2.10"], conditions=[MARK]),
    )
    assert held(was) == {"ours": (("192.0.2.10",), ("lan",))}
    assert [each.loser.name for each in was.duplicates] == ["theirs-until-now"]


def test_who_loses_one_family_keeps_the_other(restore, service_object):
    was = restore(
        service_object("older", age=1, ingress=["192.0.2.10"]),
        service_object("younger", ingress=["192.0.2.10", "2001:db8::10"]),
    )
    assert held(was)["younger"] == (("2001:db8::10",), ("lan",))


def test_who_shares_is_no_duplicate_even_where_two_clash_by_now(restore, service_object):
    share = {"share": "dns"}
    was = restore(
        service_object("tcp", annotations=share, ingress=["192.0.2.10"]),
        service_object("udp", annotations=share, ingress=["192.0.2.10"], ports=[{"port": 53, "protocol": "UDP"}]),
        service_object("clash", annotations=share, ingress=["192.0.2.10"]),
    )
    assert set(held(was)) == {"tcp", "udp", "clash"}
    assert was.duplicates == ()


def test_an_address_of_nobodys_pool_is_ours_only_with_our_mark(restore, service_object):
    was = restore(
        service_object("stranded", ingress=["203.0.113.1"], conditions=[MARK]),
        service_object("foreign", ingress=["203.0.113.2"]),
    )
    assert held(was) == {"stranded": (("203.0.113.1",), ("",))}


def test_beside_our_word_that_nothing_is_assigned_an_address_is_anothers(restore, service_object):
    refused = {**MARK, "status": "False", "reason": "PoolFull"}
    was = restore(
        service_object("stranded", ingress=["203.0.113.1"], conditions=[MARK]),
        service_object("theirs", ingress=["203.0.113.2"], conditions=[refused]),
        service_object("theirs-of-ours", ingress=["192.0.2.10"], conditions=[refused]),
    )
    assert held(was) == {"stranded": (("203.0.113.1",), ("",)), "theirs-of-ours": (("192.0.2.10",), ("lan",))}


def test_of_one_family_the_first_address_counts(restore, service_object):
    assert held(restore(service_object("web", ingress=["192.0.2.11", "192.0.2.10"])))["web"][0] == ("192.0.2.11",)


def test_without_a_status_the_record_is_what_is_held(restore, service_object):
    was = restore(service_object("web", annotations={"record": "192.0.2.15,2001:db8::15"}))
    assert held(was) == {"web": (("192.0.2.15", "2001:db8::15"), ("lan", "lan"))}


@pytest.mark.parametrize(
    ("record", "parts"),
    [
        ("192.0.2.10", {}),  # stands in a status
        ("203.0.113.1", {}),  # nobody offers it
        ("198.51.100.1", {}),  # its pool gives nothing new
        ("nonsense,,", {}),
        ("2001:db8::15%eth0", {}),  # equal to no address, and yet one that is offered
        ("192.0.2.15", {"annotations": {"pool": "other"}}),
        ("192.0.2.10", {"annotations": {"share": "dns"}}),
    ],
)
def test_a_record_takes_nothing_that_could_not_be_asked_for(restore, service_object, record, parts):
    annotations = {**parts.get("annotations", {}), "record": record}
    was = restore(
        service_object("forger", age=5, annotations=annotations), service_object("web", ingress=["192.0.2.10"])
    )
    assert held(was) == {"web": (("192.0.2.10",), ("lan",))}
    assert was.duplicates == ()


def test_of_a_record_no_more_is_looked_at_than_one_of_ours_says(restore, service_object):
    def first_of(*said):
        return held(restore(service_object("web", annotations={"record": ",".join(said)})))

    assert first_of("2001:db8::15", "192.0.2.15")["web"][0] == ("2001:db8::15", "192.0.2.15")
    assert first_of("nonsense", "192.0.2.15")["web"][0] == ("192.0.2.15",)
    # A quarter of a million take seconds to read.
    assert first_of(*["nonsense"] * MAX_HELD, "192.0.2.15") == {}


def test_who_was_suspended_keeps_the_place(restore, service_object):
    share = {"share": "dns"}
    was = restore(
        service_object("served", annotations=share, ingress=["192.0.2.10"]),
        service_object("suspended", age=1, annotations={**share, "record": "192.0.2.10"}),
    )
    assert [(entry.service.name, entry.suspended) for entry in was.ledger.held] == [
        ("served", ()),
        ("suspended", ("192.0.2.10",)),
    ]


def test_who_lost_a_duplicate_does_not_get_it_by_the_record(restore, service_object):
    record = {"record": "192.0.2.10"}
    was = restore(
        service_object("older", age=1, annotations=record, ingress=["192.0.2.10"]),
        service_object("younger", annotations=record, ingress=["192.0.2.10"]),
    )
    assert list(held(was)) == ["older"]


def test_an_eip_of_a_pool_that_must_not_be_used_any_more_is_still_from_there(service_object, eip_object):
    lan, younger = (
        read_pool(eip_object(name, text)) for name, text in (("lan", "192.0.2.1"), ("younger", "192.0.2.9"))
    )
    services = [service_object("web", ingress=["192.0.2.9"], conditions=[MARK]), service_object("new")]
    read = [(each, read_service(each, default_class=False)) for each in services]
    was = restored(read, Catalogue({"lan": lan}), Catalogue({"younger": younger}))
    assert held(was) == {"web": (("192.0.2.9",), ("younger",))}


@pytest.mark.parametrize("namespaces", [["default"], ["others"]])
@pytest.mark.parametrize("recorded_as", ["lan", "gone"])
@pytest.mark.parametrize("used", [True, False])
def test_beside_sharers_a_place_is_kept_by_those_alone_whom_the_pool_lets_in(
    service_object, eip_object, namespaces, recorded_as, used
):
    lan = {"lan": read_pool(eip_object("lan", "192.0.2.10", namespaces=namespaces))}
    share = {"share": "dns"}
    said = recorded(f"IPv4 from {recorded_as}")
    served = service_object("served", age=1, ingress=["192.0.2.10"], conditions=[MARK, said], annotations=share)
    kept = service_object("kept", annotations={**share, "record": "192.0.2.10"})
    read = [(each, read_service(each, default_class=False)) for each in (served, kept)]
    was = restored(read, Catalogue(lan if used else {}), Catalogue({} if used else lan))
    assert sorted(held(was)) == (["kept", "served"] if namespaces == ["default"] else ["served"])


def test_a_place_of_which_nobody_knows_the_pool_is_kept_by_those_alone_who_are_served_there(service_object):
    share = {"share": "dns"}
    served = service_object("served", age=1, ingress=["192.0.2.10"], conditions=[MARK], annotations=share)
    kept = service_object("kept", annotations={**share, "record": "192.0.2.10"})
    read = [(each, read_service(each, default_class=False)) for each in (served, kept)]
    assert list(held(restored(read, Catalogue({})))) == ["served"]


@pytest.mark.parametrize(("names", "kept"), [("", False), ("elsewhere", True)])
def test_beside_a_service_of_another_namespace_a_place_is_kept_by_whom_that_one_names(
    restore, service_object, names, kept
):
    share = {"share": "dns"}
    theirs = share | ({"share-namespaces": names} if names else {})
    served = service_object("served", age=1, annotations=theirs, ingress=["192.0.2.10"])
    ours = service_object("ours", annotations={**share, "record": "192.0.2.10"})
    ours = replace(ours, metadata=replace(ours.metadata, namespace="elsewhere"))
    assert list(held(restore(served, ours))) == (["served", "ours"] if kept else ["served"])


@pytest.mark.parametrize("clash", [False, True])
def test_no_more_have_a_place_by_their_records_than_may_share_an_eip(restore, service_object, clash):
    annotations = {"share": "dns", "record": "192.0.2.10"}
    was = restore(
        *(
            service_object(f"s{number}", annotations=annotations, ports=[{"port": 53 if clash else 1 + number}])
            for number in range(MAX_SHARING + 10)
        )
    )
    assert len(was.ledger.held) == MAX_SHARING
