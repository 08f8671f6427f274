"""What ``speaker explain`` and ``doctor`` have every agent of a cluster run."""

import pytest

from speaker.cli import _parser
from speaker.commands.parser import parse
from speaker.tools.explain import asked_of_each


@pytest.mark.parametrize(("command", "about"), [("explain", "192.0.2.10"), ("explain", "--odd"), ("doctor", "")])
@pytest.mark.parametrize("forwarder", ["", "ipvs"])
def test_each_agent_is_told_what_it_is_asked_about_and_what_should_forward(command, about, forwarder):
    asked = parse(_parser(), asked_of_each(command, about, forwarder))
    assert (asked.about, asked.forwarder, asked.facts) == (about, forwarder, True)
