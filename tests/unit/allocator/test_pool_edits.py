"""Nothing that happens to a pool re-addresses a Service (peers.md §3, complaint 17)."""

from ipaddress import ip_address

import pytest

from speaker.allocator.assign import Allocator
from speaker.allocator.book import HeldAddresses, Ledger, Rules
from speaker.model import CanReach, Gratuitous, LabelRule, LabelSelector, LinkNames, Pool, ServiceKey


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


def move_some(lan):
    """As an administrator does it who splits a pool."""
    lan.pool("lan", "192.0.2.0/28", exclude="192.0.2.1-192.0.2.2")
    lan.pool("dmz", "192.0.2.1-192.0.2.2")


@pytest.mark.parametrize("restarted", [False, True])
def test_a_service_that_names_its_pool_keeps_its_address_when_that_is_moved_to_another(lan, restarted):
    lan.pool("lan", "192.0.2.0/28")
    assert lan.ask("s1", pool="lan") == "192.0.2.1"
    move_some(lan)
    assert lan.ask("s1", pool="lan") == "192.0.2.1"
    assert lan.flagged == "192.0.2.1"
    if restarted:
        lan.restart()
    assert lan.ask("s1", pool="lan") == "192.0.2.1"
    assert lan.pools_of("s1", pool="lan") == ("lan",), "its rules go on"
    assert lan.ask("s2", pool="dmz") == "192.0.2.2"
    assert lan.pools_of("s1") == ("dmz",), "once it does not name the other any more"
    assert lan.ask("s1", pool="lan") == "192.0.2.3", "which is a wish by now"


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(("names", "pools"), [("lan", "lan"), (None, "dmz")])
def test_an_eip_that_is_shared_stays_the_pools_that_one_of_its_services_names(lan, service, names, pools, restarted):
    some = [service("s1", share="k", ports="80"), service("s2", share="k", ports="81", pool=names)]
    lan.pool("lan", "192.0.2.0/28")
    assert lan.settle(some) == {"s1": "192.0.2.1", "s2": "192.0.2.1"}
    move_some(lan)
    if restarted:
        lan.restart()
    assert lan.settle(some) == {"s1": "192.0.2.1", "s2": "192.0.2.1"}
    assert lan.settle(some) == {"s1": "192.0.2.1", "s2": "192.0.2.1"}
    assert lan.pools_of("s1", share="k", ports="80") == (pools,)
    assert lan.flagged == ("192.0.2.1" if names else "")
    lan.settle(some[:1])
    assert lan.pools_of("s1", share="k", ports="80") == ("dmz",), "nobody is left who names the other"


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


def test_the_rules_of_a_pool_that_is_gone_are_kept_while_its_eips_are_in_use_also_by_a_restart(lan, service):
    rules = {
        "interface": LinkNames(("eth1", "eth0")),
        "gratuitous": Gratuitous(burst=2),
        "node_selector": LabelSelector((LabelRule("rack", "In", frozenset({"a", "b"})), LabelRule("x", "Exists"))),
    }
    lan.pool("lan", "192.0.2.0/29", **rules)
    lan.pool("far", "2001:db8::/64", interface=CanReach(ip_address("2001:db8:1::1")))
    lan.ask("s1", families="46", policy="require")
    lan.delete_pool("lan")
    lan.delete_pool("far")
    for _ in range(2):
        former = lan.allocator.former_pools
        assert former["far"].interface == CanReach(ip_address("2001:db8:1::1"))
        assert {name: getattr(former["lan"], name) for name in rules} == rules
        lan.restart()
    assert lan.pools_of("s1", families="46", policy="require") == ("lan", "far")
    lan.gone("s1")
    lan.restart()
    assert lan.allocator.former_pools == {}


def test_what_rules_hold_is_news_to_save(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1")
    before = lan.allocator.revision
    lan.pool("lan", "192.0.2.0/28", priority=3)
    assert lan.allocator.revision == before
    lan.pool("lan", "192.0.2.0/28", interface=LinkNames(("eth1",)))
    assert lan.allocator.revision > before


def test_a_ledger_of_an_earlier_release_says_nothing_of_rules_and_its_eips_go_by_their_own_subnet(lan):
    allocator = Allocator()
    allocator.restore(Ledger((HeldAddresses(ServiceKey("default", "s1"), ("192.0.2.1",), ("lan",)),)), 0.0)
    assert allocator.former_pools == {"lan": Pool("lan", ())}


def test_rules_that_cannot_be_read_make_a_ledger_damaged():
    with pytest.raises(ValueError, match="link names"):
        Allocator().restore(Ledger(pools=(Rules("lan", "eth0:1"),)), 0.0)


def test_a_pool_that_is_withheld_keeps_what_it_gave(lan, pool):
    wide = {"wide": pool("wide", "192.0.2.0/24")}
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1")
    lan.allocator.set_pools(wide, {}, withheld={"lan"})
    assert lan.pools_of("s1") == ("lan",)
    assert lan.flagged == ""
    assert lan.ask("s1") == "192.0.2.1"
    assert lan.flagged == "192.0.2.1"
    assert lan.ask("s2") == "192.0.2.2"
    lan.allocator.set_pools(wide, {})
    assert lan.pools_of("s1") == ("wide",)


# ── Addresses that hosts have ─────────────────────────────────────────────────────────────────────────────────


def test_what_hosts_have_is_given_to_nobody_and_counts_for_nothing(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.allocator.set_pools(lan.pools, {}, {ip_address("192.0.2.1"): "node n1", ip_address("192.0.2.3"): "node n2"})
    assert [lan.ask("s1"), lan.ask("s2")] == ["192.0.2.2", "192.0.2.4"]
    assert lan.used("lan") == (4, 2, 0)
    assert lan.ask("s3", addresses="192.0.2.1") == "host_address"
    assert "node n1" in lan.said[-1]


def test_who_holds_what_a_host_has_waits_there_and_its_family_besides_is_served(lan):
    lan.pool("lan", "192.0.2.0/29 2001:db8::/64")
    wish = {"families": "46", "policy": "require"}
    assert lan.ask("s1", **wish) == "192.0.2.1 2001:db8::1"
    lan.allocator.set_pools(lan.pools, {}, {ip_address("192.0.2.1"): "node n1"})
    assert lan.ask("s1", **wish) == "2001:db8::1 (host_address)"
    lan.gone("nobody")
    assert lan.ask("s2") == "192.0.2.2"
    lan.allocator.set_pools(lan.pools, {})
    assert lan.ask("s1", **wish) == "192.0.2.1 2001:db8::1"
