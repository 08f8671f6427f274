"""In which order findings are named, and how many of a kind."""

from dataclasses import replace

from speaker.checks import FEW, KINDS, Finding, Severity, grouped, ranked

NO_ENDPOINT = [Finding("no_endpoint", f"lab/s{each} has no endpoint", "", f"192.0.2.{each}") for each in range(200)]


def test_what_breaks_every_eip_comes_before_what_breaks_one_each():
    off = Finding("forwarding_off", "net.ipv4.ip_forward is 0", "")
    assert ranked([*NO_ENDPOINT, off], 200)[:2] == [off, NO_ENDPOINT[0]]


def test_of_what_breaks_as_many_the_cause_comes_first():
    gateway, cable = (
        Finding("gateway_silent", "no gateway answers", ""),
        Finding("no_carrier", "eth0 has no carrier", ""),
    )
    assert ranked([gateway, cable], 1) == [cable, gateway]


def test_a_setting_that_breaks_every_eip_comes_before_as_many_findings_of_one_eip_each():
    off = Finding("forwarding_off", "net.ipv4.ip_forward is 0", "")
    assert grouped([*NO_ENDPOINT, off], len(NO_ENDPOINT))[0] == off


def test_many_small_findings_of_one_kind_come_before_one_that_breaks_fewer():
    stranger = Finding("hellos_filtered", "n2 is not heard", "", eips=100)
    assert [each.kind for each in grouped([stranger, *NO_ENDPOINT], 3000)] == ["no_endpoint", "hellos_filtered"]


def test_what_breaks_nothing_yet_comes_last():
    late, many = Finding("late_hellos", "they came late", ""), Finding("stranger", "a host", "", "192.0.2.1")
    assert KINDS[late.kind].severity is Severity.WARNING
    assert ranked([late, many], 300) == [many, late]


def test_the_same_words_are_said_once():
    once = Finding("firewall_drops", "chain ip filter FORWARD drops", "nft")
    again = Finding("firewall_drops", "chain ip filter FORWARD drops", "nft", "192.0.2.1")
    assert ranked([once, again], 2) == [once]


def test_many_of_a_kind_are_told_as_one_with_their_number_and_a_few_names():
    off = Finding("forwarding_off", "net.ipv4.ip_forward is 0", "")
    _, told = grouped([off, *NO_ENDPOINT], 300)
    names = tuple(each.eip for each in NO_ENDPOINT[:FEW])
    assert told == replace(NO_ENDPOINT[0], eip="", eips=200, names=names, alike=199)
    assert told.sentence == (
        "lab/s0 has no endpoint (and 199 more of this kind; 200 EIPs: 192.0.2.0, 192.0.2.1, 192.0.2.2, …)"
    )


def test_what_was_told_as_one_can_be_told_again_with_what_is_known_besides():
    (told,) = grouped(NO_ENDPOINT, 300)
    assert grouped([told, *NO_ENDPOINT[:50]], 300)[0].eips == 200


def test_one_sentence_of_many_eips_is_told_with_their_number():
    same = [Finding("no_carrier", "eth0: it has no carrier", "ip -br link", f"192.0.2.{each}") for each in range(9)]
    (told,) = grouped(same, 9)
    assert told.sentence == "eth0: it has no carrier (9 EIPs: 192.0.2.0, 192.0.2.1, 192.0.2.2, …)"


def test_of_a_kind_the_cause_of_most_is_named_first():
    causes = [Finding("no_such_link", f"no link {link}", f"edit {link}", str(n)) for n, link in enumerate("abbb")]
    assert grouped(causes, 9)[0].what == "no link b"
