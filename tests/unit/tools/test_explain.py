"""What ``speaker explain`` and ``doctor`` have every agent of a cluster run."""

import pytest

from speaker.cli import _parser
from speaker.diagnosis.facts import Facts
from speaker.diagnosis.together import explaining
from speaker.errors import EdgeError
from speaker.node.known.knowledge import Cut, Knowledge, KnownEip, KnownPool, KnownService
from speaker.tools.explain import asked_of_each, judged_with, several
from speaker.tools.flags import parse


@pytest.mark.parametrize(("command", "about"), [("explain", "192.0.2.10"), ("explain", "--odd"), ("doctor", "")])
@pytest.mark.parametrize("forwarder", ["", "ipvs"])
def test_each_agent_is_told_what_it_is_asked_about_and_what_should_forward(command, about, forwarder):
    asked = parse(_parser(), asked_of_each(command, about, forwarder))
    assert (asked.about, asked.forwarder, asked.facts) == (about, forwarder, True)


def test_a_node_whose_facts_cannot_be_judged_is_one_that_does_not_answer():
    eip = KnownEip("192.0.2.10", (), "lan", True, "n1", 1, since=1e300, history="", chosen="")
    facts = Facts("192.0.2.10", known=Knowledge("n1", "none", in_force=True, ready=True, eips=Cut((eip,))))
    with pytest.raises(EdgeError, match="its facts cannot be judged: "):
        judged_with(explaining, "n1", facts)


def knows(*keys, pools=()):
    services = tuple(KnownService(key, (), (), "Cluster", (), (), Cut()) for key in keys)
    return Facts("web", known=Knowledge("n1", "none", services=Cut(services), pools=Cut(pools)))


def test_a_name_that_services_of_several_namespaces_have_offers_the_choice():
    assert several("web", [knows("shop/web", "blog/api"), knows("blog/web")]) == (
        "web: Services of 2 namespaces have that name. Ask for one of them:\n"
        "  speaker explain blog/web\n"
        "  speaker explain shop/web"
    )


@pytest.mark.parametrize(
    ("about", "facts"),
    [
        ("web", knows("shop/web")),
        ("shop/web", knows("shop/web", "blog/web")),
        ("web", knows("shop/web", "blog/web", pools=(KnownPool("web", Cut(), Cut(), "", "", False, 0, 0),))),
        ("web", Facts("web")),
    ],
    ids=["one has it", "it is named in full", "a pool has it too", "nobody answered"],
)
def test_a_name_that_means_one_thing_is_explained(about, facts):
    assert several(about, [facts]) == ""
