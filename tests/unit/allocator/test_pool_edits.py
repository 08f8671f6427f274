"""Nothing that happens to a pool re-addresses a Service (peers.md §3, complaint 17)."""

import pytest


def rename(lan):
    lan.delete_pool("lan")
    lan.pool("renamed", "192.0.2.0/29")


@pytest.mark.parametrize(
    ("edit", "flagged"),
    [
        (lambda lan: lan.pool("lan", "192.0.2.4/30"), True),
        (lambda lan: lan.pool("lan", "198.51.100.0/24"), True),
        (lambda lan: lan.pool("lan", "192.0.2.0/29", exclude="192.0.2.1"), True),
        (lambda lan: lan.pool("lan", "192.0.2.0/29", namespaces="blue"), True),
        (lambda lan: lan.pool("lan", "192.0.2.0/29", service_label="app=web"), True),
        (lambda lan: lan.delete_pool("lan"), True),
        (lambda lan: lan.pool("lan", "192.0.2.0/24"), False),
        (lambda lan: lan.pool("lan", "192.0.2.1"), False),
        (lambda lan: lan.pool("lan", "192.0.2.0/29", disabled=True), False),
        (lambda lan: lan.pool("lan", "192.0.2.0/29", auto_assign=False), False),
        (lambda lan: lan.pool("better", "198.51.100.0/24", priority=9), False),
        (rename, False),
    ],
)
def test_an_edit_keeps_the_address_and_flags_it_when_the_pool_would_not_give_it(lan, edit, flagged):
    lan.pool("lan", "192.0.2.0/29")
    assert lan.ask("s1") == "192.0.2.1"
    edit(lan)
    assert lan.ask("s1") == "192.0.2.1"
    assert lan.flagged == ("192.0.2.1" if flagged else "")
    lan.restart()
    assert lan.ask("s1") == "192.0.2.1"
    assert lan.flagged == ("192.0.2.1" if flagged else "")
    lan.pool("lan", "192.0.2.0/29")
    assert lan.ask("s1") == "192.0.2.1"
    assert lan.flagged == "", "a pool that comes back has nothing to complain about"


def test_a_flagged_address_is_gone_for_good_once_released(lan):
    lan.pool("lan", "192.0.2.0/30")
    lan.ask("s1")
    lan.pool("lan", "192.0.2.2")
    lan.gone("s1")
    lan.wait(60)
    assert lan.ask("s1") == "192.0.2.2"
    assert lan.ask("s2") == "pool_full"


def test_a_shrunk_pool_counts_what_it_offers(lan):
    lan.pool("lan", "192.0.2.0/29")
    for n in range(4):
        lan.ask(f"s{n}")
    lan.pool("lan", "192.0.2.1-192.0.2.2")
    assert lan.used("lan") == (2, 2, 0)
    lan.pool("lan", "192.0.2.0/29")
    assert lan.used("lan") == (6, 4, 0)
    assert lan.ask("s9") == "192.0.2.5"


def test_a_renamed_pool_takes_its_addresses_over_so_that_their_link_is_known(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1")
    rename(lan)
    assert lan.pools_of("s1") == ("renamed",)
    lan.pool("lan", "192.0.2.0/29", priority=9)
    assert lan.pools_of("s1") == ("renamed",)


def test_a_service_whose_own_labels_stop_matching_keeps_its_address(lan):
    lan.pool("web", "192.0.2.1", service_label="app=web")
    lan.ask("s1", label="app=web")
    assert lan.ask("s1", label="app=db") == "192.0.2.1"
    assert lan.flagged == "192.0.2.1"
    assert lan.ask("s1", label="app=web") == "192.0.2.1"
    assert lan.flagged == ""


def test_equal_pools_read_again_are_no_change(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1")
    before = lan.allocator.usage("lan")
    lan.pool("lan", "192.0.2.0/29")
    assert lan.allocator.usage("lan") == before
    assert lan.ask("s2") == "192.0.2.2"
