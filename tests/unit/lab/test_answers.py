"""What a backend says, a client understands."""

import pytest

from speaker.lab.backends import Answer, parse_answer, reply


@pytest.mark.parametrize(
    ("peer", "seen"),
    [(("::ffff:192.0.2.100", 1, 0, 0), "192.0.2.100"), (("2001:db8:0:1::100", 1, 0, 0), "2001:db8:0:1::100")],
)
def test_an_answer_carries_the_backends_name_and_the_client_it_saw(peer, seen):
    assert parse_answer(reply("pod1", peer)) == Answer("pod1", seen)


@pytest.mark.parametrize("line", [b"", b"\n", b"SSH-2.0-OpenSSH_9.2\r\n", b"pod1 saw", b"\xff\xfe"])
def test_anybody_elses_answer_is_none(line):
    assert parse_answer(line) is None
