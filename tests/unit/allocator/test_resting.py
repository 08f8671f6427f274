"""A released address rests: neighbours may still believe in it."""


def test_a_released_address_is_not_given_again_for_a_while(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1")
    lan.gone("s1")
    assert lan.ask("s2") == "192.0.2.2"
    lan.wait(59.9)
    assert lan.ask("s3") == "192.0.2.3"
    lan.wait(0.1)
    assert lan.ask("s4") == "192.0.2.1"


def test_unless_the_pool_is_otherwise_full_then_the_longest_rested_goes_first(lan):
    lan.pool("lan", "192.0.2.0/30")
    lan.ask("s1")
    lan.ask("s2")
    lan.gone("s2")
    lan.wait(1)
    lan.gone("s1")
    assert lan.used("lan") == (2, 0, 2)
    assert lan.ask("s3") == "192.0.2.2"
    assert lan.ask("s4") == "192.0.2.1"
    assert lan.ask("s5") == "pool_full"


def test_who_asks_for_it_gets_it_at_once(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1")
    lan.gone("s1")
    assert lan.ask("s2", addresses="192.0.2.1") == "192.0.2.1"


def test_who_left_it_gets_it_back_at_once(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1")
    lan.ask("s2")
    lan.gone("s2")
    lan.gone("s1")
    assert lan.ask("s2") == "192.0.2.2"
    assert lan.ask("s3") == "192.0.2.3"
    assert lan.ask("s1") == "192.0.2.1"


def test_who_comes_back_too_late_takes_what_there_is(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1")
    lan.ask("s2")
    lan.gone("s2")
    lan.gone("s1")
    lan.wait(60)
    assert lan.ask("s2") == "192.0.2.1"
    assert lan.used("lan") == (6, 1, 0)


def test_who_comes_back_gets_nothing_that_it_may_no_longer_have(lan):
    lan.pool("lan", "192.0.2.0/30")
    lan.ask("s1")
    lan.gone("s1")
    lan.pool("lan", "192.0.2.0/30", namespaces="blue")
    assert lan.ask("s1") == "no_pool_fits"
    lan.pool("lan", "192.0.2.2")
    assert lan.ask("s1") == "192.0.2.2"


def test_an_address_rests_on_while_its_pool_is_edited_or_away(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1")
    lan.gone("s1")
    lan.delete_pool("lan")
    lan.pool("lan", "192.0.2.0/28")
    assert lan.ask("s2") == "192.0.2.2"
    lan.wait(60)
    assert lan.ask("s3") == "192.0.2.1"


def test_an_address_released_twice_rests_from_the_second_time(lan):
    lan.pool("lan", "192.0.2.0/29")
    lan.ask("s1")
    lan.gone("s1")
    lan.wait(50)
    lan.ask("s2", addresses="192.0.2.1")
    lan.gone("s2")
    lan.wait(50)
    assert lan.ask("s3") == "192.0.2.2"
    assert lan.ask("s1") == "192.0.2.3", "it belongs to s2's return now"
    assert lan.ask("s2") == "192.0.2.1"


def test_who_left_two_addresses_may_have_the_later_one_back(lan):
    lan.pool("a", "192.0.2.1")
    lan.pool("b", "192.0.2.2")
    lan.ask("s1")
    lan.ask("s1", pool="b")
    lan.wait(30)
    lan.gone("s1")
    lan.wait(30)
    assert (lan.used("a"), lan.used("b")) == ((1, 0, 1), (1, 0, 1))
    assert lan.ask("s1") == "192.0.2.2", "the earlier one has just rested"
    assert lan.used("a") == (1, 0, 0)
