"""``speaker plan --cluster``: what it says is what a controller that runs then decides, and nothing is written."""

import io
import json
from functools import partial

import msgspec
import pytest
import yaml
from api_after import written
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from speaker.api.fields import ApiObject
from speaker.api.kinds import EipObject, ServiceObject, SliceObject
from speaker.cli import main
from speaker.controller.decider import ControllerSettings, Decider, News
from speaker.tools.plan import tell
from speaker.tools.plan_cluster import Live, applied, foresee, plan

AT = "2026-01-02T00:00:00Z"
RESTED = 1000.0
CLASS = "eip-speaker.io/speaker"

ADDRESS = st.sampled_from(["192.0.2.1", "192.0.2.2", "192.0.2.5", "203.0.113.9"])
SERVICE = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["a", "b", "c"]),
        "annotations": st.dictionaries(
            st.sampled_from(["eip-speaker.io/addresses", "eip-speaker.io/share"]), ADDRESS, max_size=2
        ),
        "port": st.sampled_from([80, 81]),
        "type": st.sampled_from(["LoadBalancer", "LoadBalancer", "LoadBalancer", "ClusterIP"]),
        "policy": st.sampled_from(["Cluster", "Local"]),
    }
)
POOL = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["lan", "dmz"]),
        "addresses": st.lists(
            st.sampled_from(["192.0.2.0/30", "192.0.2.4/30", "192.0.2.9", "203.0.113.8/31"]), min_size=1, max_size=2
        ),
        "disabled": st.sampled_from([False, False, True]),
    }
)
CHANGE = st.tuples(st.lists(SERVICE, max_size=3), st.lists(POOL, max_size=2))


def service(name="web", annotations=None, port=80, type="LoadBalancer", policy="Cluster"):  # noqa: A002
    return ApiObject(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": "default", "annotations": annotations or {}},
            "spec": {
                "type": type,
                "loadBalancerClass": CLASS,
                "externalTrafficPolicy": policy,
                "ports": [{"port": port}],
            },
        }
    )


def pool(name="lan", addresses=("192.0.2.1-192.0.2.2",), disabled=False):
    data = {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "metadata": {"name": name}}
    return ApiObject(data | {"spec": {"addresses": [*addresses], "disabled": disabled}})


def with_first_service():
    """A cluster has one Service from its beginning."""
    first = {"metadata": {"name": "kubernetes", "namespace": "default"}, "spec": {"ipFamilies": ["IPv4"]}}
    found = msgspec.convert(first, ServiceObject)
    return Live(services={found.key: found})


class Running:
    """A cluster with a controller that leads."""

    def __init__(self):
        self.live, self._decider, self._now = with_first_service(), Decider(ControllerSettings()), 0.0

    def apply(self, documents):
        then = applied(self.live, documents, AT)
        news = News(then.services, then.eips)
        for _ in range(4):
            orders = self._decider.decide(news, self._now, AT)
            bodies = {path: order.body() for path, order in orders.items() if order is not None}
            services = {key: written(found, bodies) for key, found in then.services.items()}
            then = Live(services, then.eips)
            news = News(services)
        self.live, self._now = then, self._now + RESTED

    def has(self):
        outcomes = self._decider.decided().outcomes
        return {key: (outcome.assignment, outcome.refusal) for key, outcome in outcomes.items()}


@settings(max_examples=examples(), deadline=None)
@given(history=st.lists(CHANGE, min_size=1, max_size=3), change=CHANGE)
def test_each_random_change_comes_out_as_it_was_planned(history, change):
    running = Running()
    for services, pools in history:
        running.apply([*(service(**each) for each in services), *(pool(**each) for each in pools)])
    documents = [*(service(**each) for each in change[0]), *(pool(**each) for each in change[1])]
    before = running.has()
    planned = foresee(running.live, applied(running.live, documents, AT), 10 * RESTED, AT)
    running.apply(documents)
    after = running.has()
    changed = {each.service: each for each in planned.services}
    for key in before.keys() | after.keys() | changed.keys():
        was, is_ = before.get(key), after.get(key)
        if key not in changed:
            assert was == is_
        else:
            fate = changed[key].after
            assert (fate and (fate.assignment, fate.refusal)) == is_


@pytest.fixture
def told(tmp_path):
    """``told(live, *documents, drain=…)``: exit code, and what it said."""

    def run(live, *documents, drain=()):
        (directory := tmp_path / "then").mkdir(exist_ok=True)
        (directory / "all.yaml").write_text(yaml.safe_dump_all([each.data for each in documents]))
        out, err = io.StringIO(), io.StringIO()
        find = partial(plan, live, directory if documents else None, frozenset(drain))
        code = tell(find, out, err, as_json=True)
        return code, json.loads(out.getvalue()) if out.getvalue() else err.getvalue()

    return run


def running(*documents):
    found = Running()
    found.apply(documents)
    return found.live


def test_what_is_there_already_changes_nothing(told):
    assert told(running(pool(), service()), service(), pool()) == (
        0,
        {"changes": False, "services": {}, "forwarding": []},
    )


def test_a_pool_that_shrinks_keeps_what_it_gave_and_refuses_who_comes(told):
    live = running(pool(addresses=["192.0.2.1-192.0.2.2"]), service("a"), service("b"))
    code, found = told(live, pool(addresses=["192.0.2.1"]), service("c"))
    assert code == 1
    assert found["services"]["default/b"]["after"]["flagged"] == ["192.0.2.2"]
    assert found["services"]["default/c"]["before"] is None
    assert found["services"]["default/c"]["after"]["refused"] == "pool_full"


def test_a_drained_node_takes_its_endpoints_along(told):
    live = running(pool(), service(policy="Local"))
    pods = {
        "metadata": {"name": "web-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"port": 8080}],
        "endpoints": [{"addresses": [f"10.0.0.{number}"], "nodeName": f"node-{number}"} for number in (1, 2)],
    }
    found = msgspec.convert(pods, SliceObject)
    live = Live(live.services, live.eips, slices={found.key: found})
    code, said = told(live, drain=["node-1"])
    assert code == 1
    assert said["services"]["default/web"]["before"]["nodes"] == ["node-1", "node-2"]
    assert said["services"]["default/web"]["after"]["nodes"] == ["node-2"]


def test_a_mistake_in_the_manifests_ends_with_2_and_names_it(told):
    code, said = told(running(), pool(addresses=["192.0.2.300"]))
    assert code == 2
    assert "192.0.2.300" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["now"], "needs two directories"),
        (["now", "then", "--kubeconfig", "x"], "--kubeconfig: goes with --cluster"),
        (["now", "then", "--cluster"], "at most one directory"),
        (["now", "--cluster", "--state", "x"], "--state: not together with --cluster"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments, words, capsys):
    assert main(["plan", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_what_the_cluster_chose_for_a_service_stays_where_a_file_does_not_say_it():
    live = running(pool(), service())
    (key,) = (key for key in live.services if key.name == "web")
    families = {"ip_families": ("IPv4", "IPv6"), "ip_family_policy": "PreferDualStack"}
    chosen = msgspec.structs.replace(live.services[key].spec, **families)
    live = Live({key: msgspec.structs.replace(live.services[key], spec=chosen)})
    then = applied(live, [service(port=81)], AT)
    assert then.services[key].spec.ip_families == ("IPv4", "IPv6")
    assert then.services[key].spec.ports[0].port == 81
    assert then.services[key].metadata.uid == live.services[key].metadata.uid
    assert isinstance(next(iter(applied(live, [pool()], AT).eips.values())), EipObject)
