"""Where packets that come in on a link are dropped because answers leave by another."""

import pytest

from speaker.forwarding.sysctl import reverse_path


@pytest.mark.parametrize(
    ("settings", "everywhere", "dropped", "named"),
    [
        ({"eth0.rp_filter": "1"}, "eth1", 0, ["eth0"]),
        ({"all.rp_filter": "1"}, "eth1", 0, ["eth0"]),
        ({"all.rp_filter": "1"}, "wg0", 0, ["eth0", "eth1"]),
        ({"all.rp_filter": "1", "eth0.rp_filter": "2"}, "eth1", 0, []),  # the larger counts, and 2 is loose
        ({"eth0.rp_filter": "1"}, "eth0", 0, []),
        ({"eth0.rp_filter": "1"}, "eth0", 3, ["eth0"]),
        ({"eth0.rp_filter": "1"}, "", 0, []),  # nobody answers beyond the link
        ({"eth0.rp_filter": "2"}, "eth1", 3, []),
        ({}, "eth1", 3, []),
    ],
)
def test_a_strict_filter_is_named_where_answers_leave_by_another_link(settings, everywhere, dropped, named):
    read = lambda *parts: settings.get(".".join(parts).removeprefix("net.ipv4.conf."), "")  # noqa: E731
    found = [*reverse_path(["eth1", "eth0"], everywhere, dropped, read)]
    assert [each.what.split()[4].rstrip(",") for each in found] == named
    assert all(f"net.ipv4.conf.{link}.rp_filter=2 " in each.mend for each, link in zip(found, named, strict=True))
