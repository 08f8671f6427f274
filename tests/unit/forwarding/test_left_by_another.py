"""What a node without a forwarder says of the one that was there before, which it may have no right to look for."""

import os

import pytest

from speaker.forwarding.forwarder import NoForwarder, forwarded, remember


@pytest.mark.parametrize(("kind", "remedy"), [("nftables", "speaker cleanup"), ("ipvs", "reboot")])
async def test_what_another_forwarder_left_is_a_problem_that_names_the_remedy_until_it_is_gone(tmp_path, kind, remedy):
    remember(tmp_path, kind)
    (problem,) = await NoForwarder(tmp_path).problems()
    assert kind in problem.what
    assert remedy in problem.what
    assert remedy in problem.mend
    remember(tmp_path, "")
    assert await NoForwarder(tmp_path).problems() == ()


async def test_where_nobody_forwarded_or_nothing_can_be_read_there_is_no_problem(tmp_path):
    assert await NoForwarder(tmp_path / "missing").problems() == ()
    (tmp_path / "forwarded").mkdir()
    assert forwarded(tmp_path) == ""
    (tmp_path / "forwarded").rmdir()
    os.mkfifo(tmp_path / "forwarded")
    assert forwarded(tmp_path) == "", "and nobody is waited for"


def test_what_cannot_be_remembered_stops_nobody(tmp_path):
    remember(tmp_path / "missing", "ipvs")
    remember(tmp_path / "missing", "")
