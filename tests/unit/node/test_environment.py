"""The arithmetic of how soon what others do to this host is told, and taken back: within 30 s."""

from ipaddress import ip_address

import pytest

from speaker.forwarding.limits import Tables, Use, Watch
from speaker.kubeproxy.judge import Here, Judge, KubeProxy, Mode, Rules
from speaker.kubeproxy.watch import AGAIN_SECONDS, LOOK_SECONDS
from speaker.node.host import ENVIRONMENT_SECONDS

PROMISED = 30.0
EIP = ip_address("192.0.2.1")


def told_after(look, begins, ends, pace, horizon=300.0):
    """Seconds from the change until it was told, and from its end until it was taken back; ``look(now, wrong)`` says
    whether it tells, and when to look again at the latest. Time is virtual."""
    now, told, over = 0.0, None, None
    while now < horizon:
        tells, sooner = look(now, begins <= now < ends)
        if tells and told is None:
            told = now - begins
        if not tells and told is not None and over is None and now >= ends:
            over = now - ends
        now += min(pace, sooner or pace)
    return told, over


def rules_missing():
    judge, proxy = Judge(), KubeProxy(Mode.NFTABLES)

    def look(now, wrong):
        here = Here("none", {}, frozenset({EIP}))
        seen = judge.look(now, here, proxy, Rules(frozenset() if wrong else frozenset({EIP})), ())
        return bool(seen.problems), AGAIN_SECONDS if seen.unsure else None

    return look


def arp_answered_by_all():
    judge, proxy = Judge(), KubeProxy(Mode.IPVS)

    def look(now, wrong):
        seen = judge.look(now, Here("none"), proxy, Rules(frozenset()), ("eth0",) if wrong else ())
        return bool(seen.problems), AGAIN_SECONDS if seen.unsure else None

    return look


def table_full():
    watch = Watch()
    return lambda _, wrong: (bool(watch.problems(Tables(Use(95 if wrong else 50, 100)))), None)


@pytest.mark.parametrize(
    ("made", "pace"),
    [(rules_missing, LOOK_SECONDS), (arp_answered_by_all, LOOK_SECONDS), (table_full, ENVIRONMENT_SECONDS)],
)
@pytest.mark.parametrize("offset", [0.1, 5.0, 9.9, 13.0, 19.9])
def test_a_change_is_told_within_30_seconds_and_taken_back_within_30_of_its_end(made, pace, offset):
    told, over = told_after(made(), begins=60 + offset, ends=150 + offset / 2, pace=pace)
    assert told is not None
    assert told <= PROMISED
    assert over is not None
    assert over <= PROMISED
