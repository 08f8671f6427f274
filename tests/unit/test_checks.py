"""In which order findings are named, and how many of a kind."""

from speaker.checks import FEW, KINDS, Finding, Severity, ranked, summed

NO_ENDPOINT = [Finding("no_endpoint", f"lab/s{each} has no endpoint", "", f"192.0.2.{each}") for each in range(200)]


def test_what_breaks_every_eip_comes_before_what_breaks_one_each():
    off = Finding("forwarding_off", "net.ipv4.ip_forward is 0", "")
    assert ranked([*NO_ENDPOINT, off], 200)[:2] == [off, NO_ENDPOINT[0]]


def test_of_what_breaks_as_many_the_cause_comes_first():
    off, none = Finding("forwarding_off", "net.ipv4.ip_forward is 0", ""), NO_ENDPOINT[0]
    assert ranked([off, none], 1) == [none, off]


def test_what_breaks_nothing_yet_comes_last():
    late, many = Finding("late_hellos", "they came late", ""), Finding("stranger", "a host", "", "192.0.2.1")
    assert KINDS[late.kind].severity is Severity.WARNING
    assert ranked([late, many], 300) == [many, late]


def test_the_same_words_are_said_once():
    once = Finding("firewall_drops", "chain ip filter FORWARD drops", "nft")
    again = Finding("firewall_drops", "chain ip filter FORWARD drops", "nft", "192.0.2.1")
    assert ranked([once, again], 2) == [once]


def test_of_many_of_a_kind_a_few_are_named_and_the_last_of_them_has_the_rest():
    off = Finding("forwarding_off", "net.ipv4.ip_forward is 0", "")
    told = [*summed([off, *NO_ENDPOINT])]
    assert [each for each, _ in told] == [off, *NO_ENDPOINT[:FEW]]
    assert [len(more) for _, more in told] == [0, 0, 0, 200 - FEW]


def test_a_few_are_all_named_and_none_is_left():
    assert [len(more) for _, more in summed(NO_ENDPOINT[:FEW])] == [0] * FEW
