"""The controller against an API: who gets which EIP, and that nobody loses one to a restart or to a new leader."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from fake_api import Refused

from speaker.api.kinds import ASSIGNED, EIPS
from speaker.api.records import ANNOUNCEMENTS, FORWARDER, OTHER_GROUPS
from speaker.cluster.client import Client
from speaker.cluster.lease import Election, Leadership, LeaseName, Timing
from speaker.cluster.reflector import Patience
from speaker.controller.announced import Grace
from speaker.controller.decider import ControllerSettings
from speaker.controller.leader import SECRET, Leader
from speaker.controller.wanted import FINALIZER, IpMode
from speaker.errors import ApiRefused, EdgeError
from speaker.model import Balancer

GUARD = 60.0
"""Seconds; against a hang."""
QUICK = Timing(duration=3, renew_within=2.0, retry=0.2, request=1.5)
"""Where a leader is to lose what it has: so does one whose machine stands still for two seconds."""
LONG = Timing(duration=60, renew_within=50, retry=0.2, request=40)
FOREVER = Grace(float("inf"), float("inf"))
CLASS = "eip-speaker.io/speaker"
CRDS = Path(__file__).parents[2] / "manifests" / "base" / "crds"

Json = dict[str, Any]


class Cluster:
    """Services of the test's namespace and Eips, as their owners see them."""

    def __init__(self, api: Any, client: Client) -> None:
        self.api, self.client = api, client
        self.pools: list[str] = []
        self.announced: list[str] = []
        self._renewals = 0

    async def pool(self, name: str, *addresses: str, **spec: Any) -> str:
        full = f"{self.api.namespace}-{name}"
        body = {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Eip", "metadata": {"name": full}}
        await self.client.create(EIPS, {**body, "spec": {"addresses": list(addresses), **spec}})
        self.pools.append(full)
        return full

    async def edit(self, full: str, *addresses: str) -> None:
        await self.client.patch(f"{EIPS}/{full}", {"spec": {"addresses": list(addresses)}})

    async def announce(self, eip: str, holder: str, term: int = 1) -> None:
        """As agents do."""
        if eip not in self.announced:
            body = {"apiVersion": "eip-speaker.io/v1alpha1", "kind": "Announcement", "metadata": {"name": eip}}
            await self.client.create(ANNOUNCEMENTS, body)
            self.announced.append(eip)
        await self.client.patch(f"{ANNOUNCEMENTS}/{eip}", {"status": {"holder": holder, "term": term}})

    async def announcements(self) -> set[str]:
        return {each["metadata"]["name"] for each in (await self.read(ANNOUNCEMENTS))["items"]}

    async def service(self, name: str, annotations: dict[str, str] | None = None, **spec: Any) -> None:
        body = {
            "metadata": {"name": name, "annotations": _ours(annotations or {})},
            "spec": {
                "type": "LoadBalancer",
                "loadBalancerClass": CLASS,
                "allocateLoadBalancerNodePorts": False,
                "selector": {"app": name},
                "ports": [{"port": 80, "protocol": "TCP"}],
                **spec,
            },
        }
        await self.client.create(self.api.path("services"), body)

    async def change(self, name: str, annotations: dict[str, str | None] | None = None, **spec: Any) -> None:
        patch = {"metadata": {"annotations": _ours(annotations or {})}, "spec": spec}
        await self.client.patch(self.api.path("services", name), patch)

    async def delete(self, name: str) -> None:
        await self.client.delete(self.api.path("services", name))

    async def read(self, path: str) -> Json:
        found: Json = msgspec.json.decode(await self.client.get(path))
        return found

    async def services(self) -> dict[str, Json]:
        return {each["metadata"]["name"]: each for each in (await self.read(self.api.path("services")))["items"]}

    async def versions(self) -> dict[str, str]:
        return {name: each["metadata"]["resourceVersion"] for name, each in (await self.services()).items()}

    async def addresses(self) -> dict[str, tuple[str, ...]]:
        return {name: addresses_of(each) for name, each in (await self.services()).items()}

    async def eip(self, name: str) -> Json:
        return await self.read(f"{EIPS}/{name}")

    async def events(self, name: str) -> list[tuple[str, str]]:
        """Ours: a real API server has its own to say of a Service."""
        ours = [
            each
            for each in (await self.read(self.api.path("events")))["items"]
            if each["source"].get("component") == "eip-speaker-controller"
        ]
        return [(each["reason"], each["message"]) for each in ours if each["involvedObject"]["name"] == name]

    async def until(self, holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(GUARD):
            while not await holds():
                pass

    async def until_addresses(self, **wanted: tuple[str, ...]) -> None:
        found: dict[str, tuple[str, ...]] = {}
        try:
            async with asyncio.timeout(GUARD):
                while (found := await self.addresses()) != wanted:
                    pass
        except TimeoutError:
            raise AssertionError(f"{found} and never {wanted}") from None

    async def record(self, name: str, *addresses: str) -> None:
        """As if a leader had written it."""
        ingress = [{"ip": address, "ipMode": "VIP"} for address in addresses]
        await self.client.patch(
            self.api.path("services", f"{name}/status"), {"status": {"loadBalancer": {"ingress": ingress}}}
        )

    async def lease(self, node: str, forwarder: str, says: dict[str, str] | None = None) -> None:
        """Its agent renews its session Lease."""
        self._renewals += 1
        body = {
            "metadata": {"name": node, "labels": {FORWARDER: forwarder}, "annotations": says or {}},
            "spec": {"leaseTransitions": self._renewals},
        }
        leases = self.api.path("leases", api="/apis/coordination.k8s.io/v1")
        try:
            await self.client.patch(f"{leases}/{node}", body)
        except ApiRefused:
            await self.client.create(leases, body)

    async def clear(self) -> None:
        """A real API is the next test's too."""
        for name in await self.services():
            await self.delete(name)
        for name in self.pools:
            with contextlib.suppress(ApiRefused):
                await self.client.patch(f"{EIPS}/{name}", {"metadata": {"finalizers": None}})
                await self.client.delete(f"{EIPS}/{name}")
        for eip in self.announced:
            with contextlib.suppress(ApiRefused):
                await self.client.delete(f"{ANNOUNCEMENTS}/{eip}")


def _ours(annotations: dict[str, Any]) -> dict[str, Any]:
    return {f"eip-speaker.io/{name}": value for name, value in annotations.items()}


def addresses_of(service: Json) -> tuple[str, ...]:
    return tuple(each["ip"] for each in service.get("status", {}).get("loadBalancer", {}).get("ingress", ()))


def condition(found: Json, kind: str) -> Json:
    conditions = found.get("status", {}).get("conditions", ())
    return next(({**each, "is": (each["status"], each["reason"])} for each in conditions if each["type"] == kind), {})


def says(found: Json, kind: str) -> Any:
    return condition(found, kind).get("is")


class Running:
    """One replica of the controller."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        identity: str,
        settings: ControllerSettings,
        grace: Grace,
        timing: Timing,
        *,
        make_key: bool,
        settle: float,
    ) -> None:
        self.doubts: list[str] = []
        self.errors: list[EdgeError] = []
        self.bugs: list[tuple[str, BaseException]] = []
        self.failed, self.stopped = asyncio.Event(), asyncio.Event()
        self.election = Election(client, LeaseName(namespace, "controller"), identity, timing)
        patience = Patience(backoff=0.02, backoff_limit=0.2)
        self._leader = Leader(
            client,
            self.election,
            settings,
            SimpleNamespace(
                failed=self._tell,
                internal_error=self.internal_error,
                counted=lambda *_: None,
                mirrored=lambda _: None,
                doubted=lambda resource, doubt: self.doubts.append("" if doubt is None else resource),
            ),
            patience,
            grace,
            namespace,
            make_key=make_key,
            settle=settle,
        )
        self.task = asyncio.create_task(self.election.lead(self._work), name=identity)

    async def _work(self, leadership: Leadership) -> None:
        try:
            await self._leader.work(leadership)
        finally:
            self.stopped.set()

    def _tell(self, _: str, error: EdgeError) -> None:
        self.errors.append(error)
        self.failed.set()

    def internal_error(self, task: str, error: BaseException) -> None:
        self.bugs.append((task, error))

    async def stop(self) -> None:
        self.task.cancel()
        done, _ = await asyncio.wait((self.task,), timeout=2 * GUARD)
        assert done, self.task
        assert self.bugs == []
        if not self.task.cancelled():
            self.task.result()


@pytest.fixture
async def cluster(api: Any) -> AsyncIterator[Cluster]:
    if api.fake is None:
        await asyncio.to_thread(api.real.kubectl, "apply", "-k", str(CRDS))
        names = ("crd/eips.eip-speaker.io", "crd/announcements.eip-speaker.io")
        await asyncio.to_thread(api.real.kubectl, "wait", "--for=condition=established", *names)
    found = Cluster(api, await api.client())
    yield found
    await found.clear()


@pytest.fixture
async def start(api: Any) -> AsyncIterator[Any]:
    """``await start("a")`` is a controller that runs."""
    made: list[Running] = []

    async def controller(
        identity: str = "a",
        client: Client | None = None,
        grace: Grace = FOREVER,
        timing: Timing = LONG,
        *,
        make_key: bool = False,
        settle: float = 0.0,
        **settings: Any,
    ) -> Running:
        chosen, client = ControllerSettings(**settings), client or await api.client()
        running = Running(client, api.namespace, identity, chosen, grace, timing, make_key=make_key, settle=settle)
        made.append(running)
        return running

    yield controller
    for running in made:
        await running.stop()


async def test_a_service_gets_an_eip_and_everybody_can_see_why(cluster, start):
    pool = await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    await start()
    await cluster.service("web")
    await cluster.until_addresses(web=("192.0.2.10",))
    web = (await cluster.services())["web"]
    assert web["status"]["loadBalancer"]["ingress"] == [{"ip": "192.0.2.10", "ipMode": "VIP"}]
    assert says(web, ASSIGNED) == ("True", "Assigned")

    async def told() -> bool:
        eip = await cluster.eip(pool)
        return eip.get("status", {}).get("ipv4") == {"size": 11, "used": 1} and FINALIZER in eip["metadata"].get(
            "finalizers", ()
        )

    await cluster.until(told)
    assert says(await cluster.eip(pool), "Ready") == ("True", "Accepted")
    await cluster.until(lambda: cluster.events("web"))
    assert await cluster.events("web") == [("Assigned", f"192.0.2.10 from pool {pool}")]


async def test_where_the_speaker_forwards_the_ip_mode_is_proxy(cluster, start):
    await cluster.pool("lan", "192.0.2.10")
    await cluster.service("web")
    await start(ip_mode=IpMode.PROXY)
    await cluster.until_addresses(web=("192.0.2.10",))

    async def proxy() -> bool:  # once the controller knows that no agent leaves it to kube-proxy
        return bool((await cluster.services())["web"]["status"]["loadBalancer"]["ingress"][0]["ipMode"] == "Proxy")

    await cluster.until(proxy)


async def test_kube_proxy_leaves_the_eips_alone_once_the_last_agent_forwards_and_carries_them_before_one_does_not(
    cluster, start, monkeypatch
):
    """From none to ipvs and back, node by node; an agent that forwards nothing takes no EIP that kube-proxy does not
    carry (test_view.py)."""
    monkeypatch.setattr("speaker.controller.leader.ASK", 0.02)

    async def mode() -> str:
        balancer = (await cluster.services())["web"].get("status", {}).get("loadBalancer", {})
        return next((each["ipMode"] for each in balancer.get("ingress", ())), "")

    await cluster.pool("lan", "192.0.2.10")
    await cluster.service("web")
    for node in ("n1", "n2"):
        await cluster.lease(node, "none")
    await start(ip_mode=IpMode.PROXY)
    await cluster.until_addresses(web=("192.0.2.10",))
    await cluster.lease("n1", "ipvs")
    await cluster.lease("n2", "none")
    assert await mode() == "VIP"
    await cluster.lease("n2", "ipvs")
    await cluster.until(lambda: _is(mode, "Proxy"))
    await cluster.lease("n1", "none")
    await cluster.until(lambda: _is(mode, "VIP"))


@pytest.mark.parametrize("api", ["fake"], indirect=True)
async def test_an_api_that_suddenly_lists_no_agent_does_not_have_kube_proxy_drop_the_eips(
    api, cluster, start, monkeypatch
):
    monkeypatch.setattr("speaker.controller.leader.ASK", 0.02)
    await cluster.pool("lan", "192.0.2.10")
    await cluster.service("web")
    await cluster.lease("n1", "none")
    controller = await start(ip_mode=IpMode.PROXY, settle=1000.0)
    await cluster.until_addresses(web=("192.0.2.10",))
    await cluster.lease("n1", "none")
    api.fake.hides = lambda resource, _: resource == "leases"

    async def doubted() -> bool:
        await asyncio.sleep(0.1)
        return bool(controller.doubts)

    await cluster.until(doubted)
    await asyncio.sleep(0.1)
    web = (await cluster.services())["web"]
    assert web["status"]["loadBalancer"]["ingress"][0]["ipMode"] == "VIP"
    assert controller.doubts == ["agents without a forwarder"]


@pytest.mark.parametrize("api", ["fake"], indirect=True)
async def test_an_api_that_suddenly_lists_no_agent_gives_nobody_what_another_group_holds(
    api, cluster, start, monkeypatch
):
    monkeypatch.setattr("speaker.controller.leader.LOOK", 0.02)
    await cluster.pool("lan", "192.0.2.10-192.0.2.11")
    await cluster.lease("n1", "ipvs", {OTHER_GROUPS: "192.0.2.10"})
    await cluster.service("first")
    controller = await start(settle=1000.0)
    await cluster.until_addresses(first=("192.0.2.11",))
    api.fake.hides = lambda resource, _: resource == "leases"

    async def doubted() -> bool:
        await asyncio.sleep(0.1)
        return bool(controller.doubts)

    await cluster.until(doubted)
    await cluster.service("web", {"addresses": "192.0.2.10"})
    await cluster.service("last")
    await asyncio.sleep(0.5)
    assert await cluster.addresses() == {"first": ("192.0.2.11",), "web": (), "last": ()}
    assert controller.doubts == ["session Leases"]


@pytest.mark.parametrize(
    ("resource", "refused"),
    [("leases", None), ("leases", Refused(403, "Forbidden")), ("announcements", Refused(404, "NotFound"))],
)
@pytest.mark.parametrize("api", ["fake"], indirect=True)
async def test_an_api_that_does_not_show_what_others_hold_delays_a_new_leader_for_a_while_and_that_is_told(
    api, cluster, start, monkeypatch, resource, refused
):
    monkeypatch.setattr("speaker.controller.leader.PATIENT", 0.5)
    first = await start()
    await first.election.held()
    await first.stop()
    path = api.path("leases", api="/apis/coordination.k8s.io/v1") if resource == "leases" else ANNOUNCEMENTS
    api.fake.broken[path] = refused
    await cluster.pool("lan", "192.0.2.10")
    await cluster.service("web")
    controller = await start("b", settle=30.0)
    await cluster.until_addresses(web=("192.0.2.10",))
    told = [str(error) for error in controller.errors]
    assert f"{path}: not read within 0.5 s: EIPs are assigned without it" in told


async def _is(mode: Callable[[], Awaitable[str]], wanted: str) -> bool:
    return await mode() == wanted


async def test_services_with_one_share_key_share_an_eip(cluster, start):
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    await start()
    await cluster.service("tcp", {"share": "dns"})
    await cluster.service("udp", {"share": "dns"}, ports=[{"port": 53, "protocol": "UDP"}])
    await cluster.until_addresses(tcp=("192.0.2.10",), udp=("192.0.2.10",))
    await cluster.delete("tcp")
    await cluster.service("other")
    await cluster.until_addresses(udp=("192.0.2.10",), other=("192.0.2.11",))


async def test_both_families_of_a_dual_stack_service(cluster, start):
    pool = await cluster.pool("lan", "192.0.2.10-192.0.2.20", "2001:db8::10-2001:db8::20")
    await start()
    await cluster.service("web", ipFamilyPolicy="RequireDualStack", ipFamilies=["IPv6", "IPv4"])
    await cluster.until_addresses(web=("2001:db8::10", "192.0.2.10"))
    await cluster.until(lambda: _used(cluster, pool, ipv4=1, ipv6=1))


async def test_an_address_of_each_pool_that_a_service_names(cluster, start):
    lan = await cluster.pool("lan", "192.0.2.10-192.0.2.11", "2001:db8::10")
    dmz = await cluster.pool("dmz", "198.51.100.10", "2001:db8:d::10")
    leader = await start()
    await cluster.service("one", {"pool": f"{dmz},{lan}"})
    one = ("198.51.100.10", "192.0.2.10")
    await cluster.until_addresses(one=one)
    await cluster.service("two", {"pool": f"{lan},{dmz}"}, ipFamilyPolicy="RequireDualStack")
    await cluster.until_addresses(one=one, two=("192.0.2.11", "2001:db8::10", "2001:db8:d::10"))
    said = [each["reason"] for each in (await cluster.services())["two"]["status"]["conditions"]]
    assert said == ["PoolFull", "Recorded"]
    await cluster.until(lambda: _said(cluster, "two", "PoolFull", "no free IPv4 address", "dmz"))
    await cluster.delete("one")
    await cluster.until_addresses(two=("192.0.2.11", "198.51.100.10", "2001:db8::10", "2001:db8:d::10"))
    await leader.stop()
    await start()
    await cluster.change("two", {"pool": dmz})
    await cluster.until_addresses(two=("198.51.100.10", "2001:db8:d::10"))


async def test_a_namespace_gets_no_more_of_a_pool_than_it_may_and_pool_and_service_say_so(cluster, start):
    lan = await cluster.pool("lan", "192.0.2.10-192.0.2.20", perNamespace={"max": 1})
    leader = await start()
    await cluster.service("one")
    await cluster.until_addresses(one=("192.0.2.10",))
    await cluster.service("two")
    await cluster.until(lambda: _said(cluster, "two", "NamespaceFull", "1 of pool", lan))
    await cluster.until(lambda: _full(cluster, lan, cluster.api.namespace + " (1 IPv4)"))
    await cluster.client.patch(f"{EIPS}/{lan}", {"spec": {"perNamespace": {"max": 2}}})
    await cluster.until_addresses(one=("192.0.2.10",), two=("192.0.2.11",))
    await cluster.client.patch(f"{EIPS}/{lan}", {"spec": {"perNamespace": {"max": 1}}})
    await cluster.until(lambda: _full(cluster, lan, cluster.api.namespace + " (2 IPv4)"))
    await leader.stop()
    await start()
    await cluster.delete("one")
    await cluster.service("three")
    await cluster.until(lambda: _said(cluster, "three", "NamespaceFull"))
    assert await cluster.addresses() == {"two": ("192.0.2.11",), "three": ()}
    await cluster.client.patch(f"{EIPS}/{lan}", {"spec": {"perNamespace": None}})
    await cluster.until(lambda: _said(cluster, "three", "Assigned"))
    await cluster.until(lambda: _full(cluster, lan, None))


async def _full(cluster: Cluster, pool: str, words: str | None) -> bool:
    found = condition(await cluster.eip(pool), "NamespacesFull")
    return (words or "") in found.get("message", "") if words else not found


async def test_a_service_that_asks_for_it_leaves_an_address_that_its_pool_has_no_more_once(cluster, start):
    lan = await cluster.pool("lan", "192.0.2.10")
    leader = await start()
    await cluster.service("web")
    await cluster.until_addresses(web=("192.0.2.10",))
    await cluster.edit(lan, "198.51.100.10")
    await cluster.until(lambda: _said(cluster, "web", "Flagged"))
    await cluster.change("web", {"release": "now"})
    await cluster.until_addresses(web=("198.51.100.10",))
    await cluster.until(lambda: _said(cluster, "web", "Released", "192.0.2.10", "198.51.100.10"))
    await leader.stop()
    await cluster.edit(lan, "203.0.113.10")
    await start()
    await cluster.service("other")
    await cluster.until_addresses(web=("198.51.100.10",), other=("203.0.113.10",))
    await cluster.delete("other")
    await cluster.until_addresses(web=("198.51.100.10",))
    await cluster.change("web", {"release": None})
    await cluster.until(lambda: _recorded(cluster, "web", "198.51.100.10"))  # both at once would be no change
    await cluster.change("web", {"release": "now"})
    await cluster.until_addresses(web=("203.0.113.10",))


async def test_a_service_that_asks_for_it_leaves_a_pool_that_is_being_deleted_which_then_goes(cluster, start):
    lan = await cluster.pool("lan", "192.0.2.10")
    await start()
    await cluster.service("web")
    await cluster.until(lambda: _is_kept(cluster, lan))
    await cluster.pool("wan", "198.51.100.10")
    await cluster.client.delete(f"{EIPS}/{lan}")
    await cluster.until(lambda: _said(cluster, "web", "Flagged"))
    await cluster.change("web", {"release": "now"})
    await cluster.until_addresses(web=("198.51.100.10",))
    await cluster.until(lambda: _is_gone(cluster, lan))


async def _is_kept(cluster: Cluster, pool: str) -> bool:
    """By our finalizer."""
    return FINALIZER in (await cluster.eip(pool))["metadata"].get("finalizers", ())


async def _is_gone(cluster: Cluster, pool: str) -> bool:
    return pool not in {each["metadata"]["name"] for each in (await cluster.read(EIPS))["items"]}


async def _recorded(cluster: Cluster, name: str, record: str) -> bool:
    annotations: Json = (await cluster.services())[name]["metadata"]["annotations"]
    return annotations.get("eip-speaker.io/record") == record


async def _said(cluster: Cluster, name: str, reason: str, *words: str) -> bool:
    """By an event."""
    return any(why == reason and all(word in said for word in words) for why, said in await cluster.events(name))


async def _used(cluster: Cluster, pool: str, **wanted: int) -> bool:
    status = (await cluster.eip(pool)).get("status", {})
    return {family: status.get(family, {}).get("used") for family in wanted} == wanted


async def test_a_service_that_asks_for_another_eip_gets_it(cluster, start):
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    other = await cluster.pool("other", "198.51.100.1")
    await start()
    await cluster.service("web")
    await cluster.until_addresses(web=("192.0.2.10",))
    await cluster.change("web", {"addresses": "192.0.2.15"})
    await cluster.until_addresses(web=("192.0.2.15",))
    await cluster.change("web", {"addresses": None, "pool": other})
    await cluster.until_addresses(web=("198.51.100.1",))


async def test_what_cannot_be_had_is_said_and_what_is_held_stays(cluster, start):
    await cluster.pool("lan", "192.0.2.10-192.0.2.11")
    await start()
    await cluster.service("web")
    await cluster.until_addresses(web=("192.0.2.10",))
    await cluster.change("web", {"addresses": "203.0.113.1"})

    async def refused() -> bool:
        return says((await cluster.services())["web"], ASSIGNED) == ("True", "AddressNotInPool")

    await cluster.until(refused)
    assert await cluster.addresses() == {"web": ("192.0.2.10",)}

    await cluster.change("web", {"addresses": "no address"})

    async def invalid() -> bool:
        return says((await cluster.services())["web"], ASSIGNED) == ("True", "Invalid")

    await cluster.until(invalid)
    assert await cluster.addresses() == {"web": ("192.0.2.10",)}


async def test_a_service_with_a_mistake_gets_nothing_until_it_is_mended(cluster, start):
    await cluster.pool("lan", "192.0.2.10-192.0.2.11")
    await cluster.service("web", {"adresses": "192.0.2.11"})
    await start()

    async def invalid() -> bool:
        return says((await cluster.services())["web"], ASSIGNED) == ("False", "Invalid")

    await cluster.until(invalid)
    web = (await cluster.services())["web"]
    assert addresses_of(web) == ()
    assert "did you mean 'eip-speaker.io/addresses'?" in condition(web, ASSIGNED)["message"]
    await cluster.change("web", {"adresses": None, "addresses": "192.0.2.11"})
    await cluster.until_addresses(web=("192.0.2.11",))


async def test_a_full_pool_is_told_once_and_serves_whoever_waits(cluster, start):
    await cluster.pool("lan", "192.0.2.10")
    await cluster.service("web", {"addresses": "192.0.2.10"})
    await cluster.service("late")
    await start()
    await cluster.until_addresses(web=("192.0.2.10",), late=())

    async def refused() -> bool:
        return says((await cluster.services())["late"], ASSIGNED) == ("False", "PoolFull")

    await cluster.until(refused)
    await cluster.delete("web")
    await cluster.until_addresses(late=("192.0.2.10",))
    await cluster.until(lambda: _told(cluster, "late", 2))
    assert sorted(reason for reason, _ in await cluster.events("late")) == ["Assigned", "PoolFull"]


async def _told(cluster: Cluster, name: str, count: int) -> bool:
    return len(await cluster.events(name)) == count


async def test_a_service_that_is_no_load_balancer_any_more_gives_its_eip_back(cluster, start):
    await cluster.pool("lan", "192.0.2.10")
    await start()
    await cluster.service("web")
    await cluster.until_addresses(web=("192.0.2.10",))
    await cluster.change("web", type="ClusterIP", loadBalancerClass=None, allocateLoadBalancerNodePorts=None)
    await cluster.service("next")
    await cluster.until_addresses(web=(), next=("192.0.2.10",))

    async def unmarked() -> bool:
        return not condition((await cluster.services())["web"], ASSIGNED)

    await cluster.until(unmarked)


async def test_other_classes_and_other_conditions_are_left_alone(cluster, start):
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    await cluster.service("theirs", loadBalancerClass="example.com/other")
    await cluster.record("theirs", "192.0.2.10")
    await cluster.service("classless", loadBalancerClass=None)
    await cluster.service("ours")
    noted = {"type": "example.com/Seen", "status": "True", "reason": "Yes", "message": ""}
    noted["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    await cluster.client.patch(cluster.api.path("services", "ours/status"), {"status": {"conditions": [noted]}})
    before = await cluster.versions()
    await start()
    await cluster.until_addresses(theirs=("192.0.2.10",), classless=(), ours=("192.0.2.10",))
    after = await cluster.versions()
    assert {name for name in before if before[name] != after[name]} == {"ours"}
    ours = (await cluster.services())["ours"]
    assert condition(ours, "example.com/Seen")
    assert condition(ours, ASSIGNED)


async def test_with_the_default_class_services_without_one_are_served(cluster, start):
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    await cluster.service("classless", loadBalancerClass=None)
    await start(default_class=True)
    await cluster.until_addresses(classless=("192.0.2.10",))


async def test_another_balancers_annotation_is_named_and_then_obeyed_by_a_controller_that_honours_it(cluster, start):
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    await cluster.service("web")
    asking = {"metadata": {"annotations": {"metallb.universe.tf/loadBalancerIPs": "192.0.2.15"}}}
    await cluster.client.patch(cluster.api.path("services", "web"), asking)
    first = await start("a")
    await cluster.until_addresses(web=("192.0.2.10",))
    condition_ = condition((await cluster.services())["web"], ASSIGNED)
    assert (condition_["status"], condition_["reason"]) == ("True", "Unheeded")
    assert "metallb.universe.tf/loadBalancerIPs is not obeyed" in condition_["message"]
    await cluster.until(lambda: _has_event(cluster, "web", "Unheeded"))
    await first.stop()
    await start("b", honoured=frozenset({Balancer.METALLB}))
    await cluster.until_addresses(web=("192.0.2.15",))
    assert says((await cluster.services())["web"], ASSIGNED) == ("True", "Assigned")


async def _has_event(cluster, name, reason):
    return reason in dict(await cluster.events(name))


async def test_a_restart_changes_nothing(cluster, start):
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    first = await start("a")
    for name in ("b", "a", "c"):
        await cluster.service(name)
        await cluster.until(lambda name=name: _has_address(cluster, name))
    await cluster.delete("a")
    await first.stop()
    before = await cluster.versions()
    await start("b")
    await cluster.service("new")
    await cluster.until(lambda: _has_address(cluster, "new"))
    after = await cluster.versions()
    del after["new"]
    assert after == before


async def test_services_restored_without_their_statuses_get_their_old_eips(cluster, start):
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    first = await start("a")
    for name in ("b", "a"):
        await cluster.service(name)
        await cluster.until(lambda name=name: _has_address(cluster, name))
    await first.stop()
    stored = await cluster.services()
    for name in stored:
        await cluster.delete(name)
    for name, service in sorted(stored.items()):  # as a backup brings them: without status, in any order
        annotations = service["metadata"]["annotations"]
        await cluster.service(name, {key.removeprefix("eip-speaker.io/"): annotations[key] for key in annotations})
    await start("b")
    await cluster.until_addresses(b=("192.0.2.10",), a=("192.0.2.11",))


async def test_who_is_suspended_at_a_shared_eip_stays_so_through_a_restart(cluster, start):
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    first = await start("a")
    await cluster.service("tcp", {"share": "dns"})
    await cluster.until(lambda: _has_address(cluster, "tcp"))
    await cluster.service("udp", {"share": "dns"}, ports=[{"port": 80, "protocol": "UDP"}])
    await cluster.until_addresses(tcp=("192.0.2.10",), udp=("192.0.2.10",))
    await cluster.change("udp", ports=[{"port": 80, "protocol": "TCP"}])
    await cluster.until_addresses(tcp=("192.0.2.10",), udp=())
    await first.stop()
    before = await cluster.versions()
    await start("b")
    await cluster.service("new")
    await cluster.until_addresses(tcp=("192.0.2.10",), udp=(), new=("192.0.2.11",))
    after = await cluster.versions()
    assert {name: after[name] for name in before} == before
    await cluster.delete("tcp")
    await cluster.until_addresses(udp=("192.0.2.10",), new=("192.0.2.11",))


async def _has_address(cluster: Cluster, name: str) -> bool:
    return bool((await cluster.addresses()).get(name))


async def test_when_the_leader_dies_another_follows_and_no_address_changes(api, cluster, start):
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    relay = await api.relay()
    first = await start("a", await api.client(relay), timing=QUICK)
    for name in ("x", "y"):
        await cluster.service(name)
        await cluster.until(lambda name=name: _has_address(cluster, name))
    before = await cluster.versions()
    second = await start("b", timing=QUICK)
    await relay.refuse()  # from now on it is as good as dead, and cannot even give its Lease back
    await first.stop()
    await cluster.service("z")
    await cluster.until(lambda: _has_address(cluster, "z"))
    assert second.election.leadership is not None
    assert second.election.leadership.term == 1
    after = await cluster.versions()
    assert len({after.pop("z"), *after.values()}) == 3
    assert after == before
    assert len(set((await cluster.addresses()).values())) == 3


async def test_a_leader_that_is_cut_off_and_comes_back_changes_nothing(api, cluster, start):
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    relay = await api.relay()
    first = await start("a", await api.client(relay), timing=QUICK)
    await cluster.service("x")
    await cluster.until(lambda: _has_address(cluster, "x"))
    second = await start("b", timing=QUICK)
    relay.hold()
    await cluster.service("y")
    await cluster.until_addresses(x=("192.0.2.10",), y=("192.0.2.11",))
    assert first.stopped.is_set()
    before = await cluster.versions()
    relay.resume()
    await cluster.service("z")
    await cluster.until_addresses(x=("192.0.2.10",), y=("192.0.2.11",), z=("192.0.2.12",))
    after = await cluster.versions()
    assert {name: after[name] for name in before} == before
    assert second.election.leadership is not None


async def test_two_that_share_and_clash_since_nobody_led_are_settled_by_age(cluster, start):
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    first = await start("a")
    await cluster.service("tcp", {"share": "dns"})
    await cluster.until(lambda: _has_address(cluster, "tcp"))
    await cluster.service("udp", {"share": "dns"}, ports=[{"port": 80, "protocol": "UDP"}])
    await cluster.until_addresses(tcp=("192.0.2.10",), udp=("192.0.2.10",))
    await first.stop()
    await cluster.change("udp", ports=[{"port": 80, "protocol": "TCP"}])
    await start("b")
    await cluster.until_addresses(tcp=("192.0.2.10",), udp=())
    assert says((await cluster.services())["udp"], ASSIGNED) == ("False", "SharedPortClash")


async def test_a_duplicate_found_at_the_start_is_resolved_by_age(cluster, start):
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    for name in ("a-first", "b-second"):  # in one second the name decides
        await cluster.service(name)
        await cluster.record(name, "192.0.2.10")
    await start()
    await cluster.until_addresses(**{"a-first": ("192.0.2.10",), "b-second": ("192.0.2.11",)})
    await cluster.until(lambda: cluster.events("b-second"))
    ((reason, message),) = await cluster.events("b-second")
    assert reason == "DuplicateAddress"
    assert "192.0.2.10" in message
    assert "a-first" in message
    await cluster.change("b-second", {"addresses": "192.0.2.15"})
    await cluster.until(lambda: _told(cluster, "b-second", 2))
    assert {reason for reason, _ in await cluster.events("b-second")} == {"DuplicateAddress", "Assigned"}


async def test_a_status_that_somebody_changes_is_put_right(cluster, start):
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    await start()
    await cluster.service("web")
    await cluster.until_addresses(web=("192.0.2.10",))
    for others in (("192.0.2.19",), ()):
        await cluster.record("web", *others)
        await cluster.until_addresses(web=("192.0.2.10",))


async def test_deleting_a_pool_in_use_waits_and_says_for_whom(api, cluster, start):
    pool = await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    await start()
    await cluster.service("web")
    await cluster.until(lambda: _is_kept(cluster, pool))
    await cluster.client.delete(f"{EIPS}/{pool}")

    async def waits() -> bool:
        return says(await cluster.eip(pool), "Ready") == ("False", "Terminating")

    await cluster.until(waits)
    assert f"192.0.2.10 ({api.namespace}/web)" in condition(await cluster.eip(pool), "Ready")["message"]
    await cluster.service("late")

    async def refused() -> bool:
        return says((await cluster.services())["late"], ASSIGNED) is not None

    await cluster.until(refused)
    assert await cluster.addresses() == {"web": ("192.0.2.10",), "late": ()}
    await cluster.delete("web")
    await cluster.until(lambda: _is_gone(cluster, pool))


async def test_of_two_pools_that_overlap_the_younger_is_refused(cluster, start):
    older = await cluster.pool("a-older", "192.0.2.10-192.0.2.20")
    younger = await cluster.pool("b-younger", "192.0.2.20-192.0.2.30", "198.51.100.0/24")
    await start()

    async def refused() -> bool:
        return says(await cluster.eip(younger), "Ready") == ("False", "Overlap")

    await cluster.until(refused)
    assert older in condition(await cluster.eip(younger), "Ready")["message"]
    await cluster.service("web", {"pool": younger})

    async def told() -> bool:
        return says((await cluster.services())["web"], ASSIGNED) == ("False", "NoSuchPool")

    await cluster.until(told)
    await cluster.client.delete(f"{EIPS}/{older}")
    await cluster.until(lambda: _has_address(cluster, "web"))

    async def accepted() -> bool:
        return says(await cluster.eip(younger), "Ready") == ("True", "Accepted")

    await cluster.until(accepted)


async def _refused(cluster: Cluster, pool: str, reason: str) -> bool:
    return says(await cluster.eip(pool), "Ready") == ("False", reason)


async def _says(cluster: Cluster, name: str, *said: str) -> bool:
    return says((await cluster.services())[name], ASSIGNED) == said


async def test_an_older_pool_that_is_edited_into_a_younger_one_takes_nothing_from_anybody(cluster, start):
    older = await cluster.pool("a-older", "192.0.2.10-192.0.2.11")
    younger = await cluster.pool("b-younger", "192.0.2.20-192.0.2.22")
    first = await start("a")
    for name, address in (("in-both", "192.0.2.20"), ("in-one", "192.0.2.21")):
        await cluster.service(name, {"addresses": address})
    kept = {"in-both": ("192.0.2.20",), "in-one": ("192.0.2.21",)}
    await cluster.until_addresses(**kept)
    await cluster.edit(older, "192.0.2.10-192.0.2.11", "192.0.2.20")
    await cluster.until(lambda: _refused(cluster, younger, "Overlap"))
    # Both are the younger one's still, and served by its rules, whatever the older one offers now.
    await cluster.until(lambda: _says(cluster, "in-both", "True", "Flagged"))
    await cluster.until(lambda: _says(cluster, "in-one", "True", "Flagged"))
    await cluster.until(lambda: _used(cluster, older, ipv4=1))

    await cluster.service("thief", {"addresses": "192.0.2.20"})
    await cluster.until(lambda: _says(cluster, "thief", "False", "AddressInUse"))
    await cluster.service("late", {"pool": younger})
    await cluster.until(lambda: _says(cluster, "late", "False", "NoSuchPool"))
    for name in ("x", "y"):
        await cluster.service(name)
        await cluster.until(lambda name=name: _has_address(cluster, name))
    everybody = {**kept, "thief": (), "late": (), "x": ("192.0.2.10",), "y": ("192.0.2.11",)}
    assert await cluster.addresses() == everybody

    await first.stop()
    before = await cluster.versions()
    second = await start("b")
    await second.election.held()
    await cluster.service("waits")
    await cluster.until(lambda: _says(cluster, "waits", "False", "PoolFull"))
    assert {name: version for name, version in (await cluster.versions()).items() if name != "waits"} == before
    # The younger one is still in use: deleting it has to wait, after a change of leader too.
    await cluster.until(lambda: _used(cluster, older, ipv4=3))
    assert FINALIZER in (await cluster.eip(younger))["metadata"]["finalizers"]

    await cluster.edit(older, "192.0.2.10-192.0.2.11")
    await cluster.until(lambda: _says(cluster, "in-one", "True", "Assigned"))
    await cluster.until(lambda: _used(cluster, younger, ipv4=3))
    assert await cluster.addresses() == {**everybody, "late": ("192.0.2.22",), "waits": ()}


async def test_what_was_released_rests_for_as_long_as_one_leads(cluster, start):
    """The next leader does not know that it was in use: an address may be given again at once then."""
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    first = await start("a")
    await cluster.service("x")
    await cluster.until_addresses(x=("192.0.2.10",))
    await cluster.delete("x")
    await cluster.service("y")
    await cluster.until_addresses(y=("192.0.2.11",))
    await first.stop()
    await start("b")
    await cluster.service("z")
    await cluster.until_addresses(y=("192.0.2.11",), z=("192.0.2.10",))


async def _announced(cluster: Cluster, *eips: str) -> bool:
    return await cluster.announcements() == set(eips)


async def test_the_announcement_of_an_eip_that_nobody_has_goes_once_it_is_given_up(cluster, start):
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    await cluster.announce("192.0.2.15", "")
    await cluster.announce("192.0.2.16", "n2")
    for name in ("web", "xyz"):
        await cluster.service(name)
    running = await start(grace=Grace(vacant=0.0, held=float("inf")))
    await cluster.until_addresses(web=("192.0.2.10",), xyz=("192.0.2.11",))
    await cluster.announce("192.0.2.10", "n1")
    await cluster.announce("192.0.2.11", "")
    await cluster.until(lambda: _announced(cluster, "192.0.2.10", "192.0.2.11", "192.0.2.16"))
    await cluster.delete("web")
    await cluster.announce("192.0.2.10", "", 2)
    await cluster.until(lambda: _announced(cluster, "192.0.2.11", "192.0.2.16"))
    assert running.errors == []


async def test_the_announcement_of_a_node_that_is_gone_goes_after_a_while(cluster, start):
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    await cluster.announce("192.0.2.10", "n1")
    await cluster.announce("192.0.2.15", "n1")
    await cluster.announce("192.0.2.16", "")
    await cluster.service("web")
    running = await start(grace=Grace(vacant=float("inf"), held=0.1))
    await cluster.until(lambda: _announced(cluster, "192.0.2.10", "192.0.2.16"))
    assert running.errors == []


async def test_without_announcements_in_the_api_everybody_is_served_all_the_same(api, cluster, start):
    if api.fake is None:
        await asyncio.to_thread(api.real.kubectl, "delete", "-f", str(CRDS / "announcements.yaml"))
    else:
        api.fake.broken[ANNOUNCEMENTS] = Refused(404, "NotFound")
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    await start()
    await cluster.service("web")
    await cluster.until_addresses(web=("192.0.2.10",))


async def test_a_range_that_runs_backwards_is_a_condition(cluster, start):
    pool = await cluster.pool("lan", "2001:db8::20-2001:db8::10")
    await start()

    async def refused() -> bool:
        return says(await cluster.eip(pool), "Ready") == ("False", "Invalid")

    await cluster.until(refused)
    assert "spec.addresses[0]" in condition(await cluster.eip(pool), "Ready")["message"]


async def test_an_api_that_is_killed_and_comes_back_finds_everything_as_it_was(api, cluster, start):
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    running = await start(timing=QUICK)
    await cluster.service("a")
    await cluster.until(lambda: _has_address(cluster, "a"))
    before = await cluster.versions()
    await api.stop()
    await running.stopped.wait()
    await api.start()
    await cluster.service("b")
    await cluster.until_addresses(a=("192.0.2.10",), b=("192.0.2.11",))
    assert (await cluster.versions())["a"] == before["a"]


async def test_whoever_else_writes_into_a_service_delays_it_and_no_more(cluster, start):
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    await cluster.service("web")
    await start()

    async def disturb() -> None:
        for number in range(50):  # each makes the version stale that a write names
            await cluster.client.patch(
                cluster.api.path("services", "web"), {"metadata": {"annotations": {"note": str(number)}}}
            )

    await disturb()
    await cluster.until_addresses(web=("192.0.2.10",))
    assert (await cluster.services())["web"]["metadata"]["annotations"]["note"] == "49"


# ── What a healthy API server cannot be told to do, and what only a fake can count ──

ONLY_FAKE = pytest.mark.parametrize("api", ["fake"], indirect=True)


@ONLY_FAKE
@pytest.mark.parametrize("code", [403, 422, 500])
async def test_an_object_that_cannot_be_written_holds_up_no_other(api, cluster, start, code):
    await cluster.pool("lan", "192.0.2.10-192.0.2.50")
    broken = api.path("services", "broken/status")
    api.fake.broken[broken] = Refused(code, "Broken")
    await cluster.service("broken")
    for number in range(20):
        await cluster.service(f"s{number}")
    running = await start()
    await cluster.until(lambda: _served(cluster, 20))
    await running.failed.wait()
    assert {error.code for error in running.errors if isinstance(error, ApiRefused)} == {code}
    tries = sum(path == broken for _, path, _ in api.fake.requests)
    assert tries <= 10
    del api.fake.broken[broken]
    await cluster.until(lambda: _served(cluster, 21))


@ONLY_FAKE
@pytest.mark.parametrize(("code", "reason"), [(404, "NotFound"), (409, "Conflict")])
async def test_an_announcement_that_is_another_by_now_is_no_failure(api, cluster, start, code, reason):
    path = f"{ANNOUNCEMENTS}/192.0.2.15"
    await cluster.announce("192.0.2.15", "")
    api.fake.broken[path] = Refused(code, reason)
    running = await start(grace=Grace(vacant=0.0, held=0.0))

    async def tried() -> bool:
        await cluster.announcements()
        return any((method, each) == ("DELETE", path) for method, each, _ in api.fake.requests)

    await cluster.until(tried)
    del api.fake.broken[path]
    await cluster.announce("192.0.2.15", "n1", 2)  # what it is now is heard, and goes
    await cluster.until(lambda: _announced(cluster))
    assert running.errors == []


async def _served(cluster: Cluster, count: int) -> bool:
    found = (await cluster.addresses()).values()
    return sum(map(bool, found)) == count == len(set(filter(None, found)))


@ONLY_FAKE
async def test_a_service_costs_two_requests_and_a_restart_none(api, cluster, start):
    pool = await cluster.pool("lan", "192.0.2.1-192.0.2.100")
    names = [f"s{number}" for number in range(60)]
    for name in names:
        await cluster.service(name)
    running = await start()
    await cluster.until(lambda: _served(cluster, len(names)))
    await cluster.until(lambda: _used(cluster, pool, ipv4=len(names)))
    await cluster.until(lambda: _all_told(cluster, len(names)))
    statuses = [path for method, path, _ in api.fake.requests if method == "PATCH" and "/services/" in path]
    events = [path for method, path, _ in api.fake.requests if method == "POST" and path.endswith("/events")]
    assert (len(statuses), len(events)) == (len(names), len(names))
    pools = [path for method, path, _ in api.fake.requests if method == "PATCH" and path.startswith(EIPS)]
    assert len(pools) <= 6
    await running.stop()
    seen = len(api.fake.requests)
    again = await start("b")
    await again.election.held()
    await cluster.service("last")
    await cluster.until(lambda: _has_address(cluster, "last"))
    written = {path for method, path, _ in api.fake.requests[seen:] if method == "PATCH" and "/services/" in path}
    assert written == {api.path("services", "last/status")}


async def _all_told(cluster: Cluster, count: int) -> bool:
    return len((await cluster.read(cluster.api.path("events")))["items"]) == count


async def test_a_services_owner_reads_where_its_eip_moved(cluster, start):
    await cluster.pool("lan", "192.0.2.10")
    await start()
    await cluster.service("web")
    await cluster.until_addresses(web=("192.0.2.10",))
    terms = itertools.count(1)

    async def moved() -> bool:
        """To and fro: what a leader hears first is no news."""
        await cluster.announce("192.0.2.10", f"n{(term := next(terms)) % 2}", term)
        return any(reason == "Moved" for reason, _ in await cluster.events("web"))

    await cluster.until(moved)
    messages = {message for reason, message in await cluster.events("web") if reason == "Moved"}
    assert messages <= {"192.0.2.10 moved from n0 to n1", "192.0.2.10 moved from n1 to n0"}


@ONLY_FAKE
async def test_an_event_that_cannot_be_told_costs_nobody_an_address(api, cluster, start):
    api.fake.broken[api.path("events")] = Refused(403, "Forbidden")
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    await cluster.service("web")
    await start()
    await cluster.until_addresses(web=("192.0.2.10",))


# ── The agents' key ──


async def test_who_leads_makes_the_key_and_its_successor_leaves_it_alone(api, cluster, start):
    secrets = api.path("secrets")
    first = await start("a", make_key=True)
    await cluster.until(lambda: _made(cluster, secrets))
    before = await cluster.read(f"{secrets}/{SECRET}")
    await first.stop()
    await cluster.pool("lan", "192.0.2.10")
    await cluster.service("web")
    second = await start("b", make_key=True)
    await cluster.until_addresses(web=("192.0.2.10",))
    assert await cluster.read(f"{secrets}/{SECRET}") == before
    assert first.errors + second.errors == []


async def test_nobody_makes_a_key_that_was_not_told_to(api, cluster, start):
    await cluster.pool("lan", "192.0.2.10")
    await cluster.service("web")
    await start()
    await cluster.until_addresses(web=("192.0.2.10",))
    assert not await _made(cluster, api.path("secrets"))


@ONLY_FAKE
async def test_a_key_that_may_not_be_made_holds_up_nobody(api, cluster, start):
    secrets = api.path("secrets")
    api.fake.broken[secrets] = Refused(403, "Forbidden")
    await cluster.pool("lan", "192.0.2.10")
    await cluster.service("web")
    running = await start(make_key=True)
    await running.failed.wait()
    await cluster.until_addresses(web=("192.0.2.10",))
    del api.fake.broken[secrets]
    await cluster.until(lambda: _made(cluster, secrets))
    assert {str(error) for error in running.errors} == {"the API answered 403 Forbidden: Forbidden"}


async def _made(cluster: Cluster, secrets: str) -> bool:
    return SECRET in {each["metadata"]["name"] for each in (await cluster.read(secrets))["items"]}


@pytest.mark.parametrize("api", ["fake"], indirect=True)  # a real one would lose what other tests made
@pytest.mark.parametrize("written_since", [0, 1000])
async def test_after_a_restore_it_goes_by_the_data_of_now_however_much_was_written_since(
    api, cluster, start, written_since
):
    """Where the new data has come further than the old, no watch tells of what was lost: the Lease does."""
    fake = api.fake
    fake.bookmark_every = 2 * GUARD  # nor is any told of what it does not mirror
    await cluster.pool("lan", "192.0.2.10", "192.0.2.11")
    await cluster.service("old")
    running = await start()
    await cluster.until_addresses(old=("192.0.2.10",))
    backup = fake.revision
    await cluster.service("lost")
    await cluster.until_addresses(old=("192.0.2.10",), lost=("192.0.2.11",))

    async def renewed() -> bool:
        lease = await cluster.read(api.path("leases", "controller", "/apis/coordination.k8s.io/v1"))
        return int(lease["metadata"]["resourceVersion"]) > backup

    await cluster.until(renewed)
    fake.restore(backup)
    fake.revision += written_since
    await cluster.service("new")
    await cluster.until_addresses(old=("192.0.2.10",), new=("192.0.2.11",))
    assert not running.stopped.is_set(), "it leads on: what it knows was not begun anew"


class Broken:
    """A follower, and a counter, that meet a bug whatever they are told."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()

    def follow(self, decided: Any) -> None:
        raise TypeError("a bug")

    def failed_over(self, failover: Any) -> None:
        raise TypeError("a bug")

    async def run(self, records: Any) -> None:
        raise TypeError("a bug")


@ONLY_FAKE
async def test_bugs_in_what_is_told_keep_no_service_from_its_address(cluster, start):
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    running = await start()
    running._leader.followers = (Broken(),)
    await cluster.service("web")
    await cluster.until_addresses(web=("192.0.2.10",))
    await cluster.service("dns")
    await cluster.until_addresses(web=("192.0.2.10",), dns=("192.0.2.11",))
    running.task.cancel()  # what was decided last may not have been told yet
    await asyncio.wait((running.task,))
    assert {task for task, _ in running.bugs} == {"published"}
    running.bugs.clear()


class Follower:
    """``rested`` once it was told that an address rests, and then that none does."""

    def __init__(self) -> None:
        self.changed, self.rested = asyncio.Event(), asyncio.Event()
        self._rests = False

    def follow(self, decided: Any) -> None:
        resting = sum(family.resting for pool in decided.usage.values() for family in pool.values())
        if self._rests and not resting:
            self.rested.set()
        self._rests = bool(resting)


@ONLY_FAKE
async def test_that_an_address_has_rested_is_shown_though_nothing_else_happens(cluster, start):
    await cluster.pool("lan", "192.0.2.10-192.0.2.20")
    running = await start(rest=0.01)
    await cluster.service("web")
    await cluster.until_addresses(web=("192.0.2.10",))
    running._leader.followers = (follower := Follower(),)
    await cluster.delete("web")
    async with asyncio.timeout(GUARD):
        await follower.rested.wait()


@pytest.mark.parametrize("api", ["fake"], indirect=True)
@pytest.mark.parametrize("resource", ["services", "eips", "namespaces"])
async def test_an_api_that_suddenly_lists_nothing_has_no_eip_released_or_given_to_others(api, cluster, start, resource):
    await cluster.pool("lan", "192.0.2.10-192.0.2.12")
    for name in ("a", "b"):
        await cluster.service(name)
    controller = await start(settle=1000.0)
    await cluster.until_addresses(a=("192.0.2.10",), b=("192.0.2.11",))
    before = len(api.fake.requests)
    api.fake.hides = lambda kind, _: kind == resource
    api.fake.revision += 1
    api.fake.compact()
    api.fake.cut_watches()

    async def doubted() -> bool:
        await asyncio.sleep(0)
        return controller.doubts == [resource]

    await cluster.until(doubted)
    api.fake.hides = lambda *_: False  # for this test's own reading
    await cluster.service("c")
    await cluster.until_addresses(a=("192.0.2.10",), b=("192.0.2.11",), c=("192.0.2.12",))
    writes = [path for method, path, _ in api.fake.requests[before:] if method in ("PATCH", "PUT", "DELETE")]
    assert not any(path.endswith(("/services/a/status", "/services/b/status")) for path in writes)


async def served_before(cluster: Cluster, start: Any, *, announced: bool) -> tuple[str, dict[str, tuple[str, ...]]]:
    """A pool, and what Services had from it when the last leader stopped."""
    pool = await cluster.pool("lan", "192.0.2.10-192.0.2.19")
    for name in "abcd":
        await cluster.service(name)
    first = await start("first")
    await cluster.until(lambda: _served(cluster, 4))
    await cluster.until(lambda: _used(cluster, pool, ipv4=4))
    had = await cluster.addresses()
    for (eip,) in had.values() if announced else ():
        await cluster.announce(eip, "n1")
    await first.stop()
    return pool, had


@ONLY_FAKE
@pytest.mark.parametrize("announced", [True, False], ids=["announced", "counted by the pool"])
async def test_a_new_leader_whose_first_list_lacks_what_is_in_use_takes_nothing_away_and_gives_it_to_nobody(
    api, cluster, start, announced
):
    pool, had = await served_before(cluster, start, announced=announced)
    records = await cluster.announcements()
    api.fake.hides = lambda kind, found: kind == "services" and found["metadata"]["name"] in had
    controller = await start("second", settle=2.0, grace=Grace(0.0, 0.0))

    async def doubted() -> bool:
        await asyncio.sleep(0)
        return bool(controller.doubts)

    await cluster.until(doubted)
    before = len(api.fake.requests)
    await cluster.service("new")
    await asyncio.sleep(1.0)
    writes = [path for method, path, _ in api.fake.requests[before:] if method in ("PATCH", "DELETE")]
    assert writes == []
    api.fake.hides = lambda *_: False
    await cluster.until_addresses(**had, new=("192.0.2.14",))
    assert await cluster.announcements() == records
    assert FINALIZER in (await cluster.eip(pool))["metadata"]["finalizers"]
    assert controller.doubts == ["EIPs of Services", ""]


@ONLY_FAKE
async def test_what_a_new_leaders_second_list_lacks_too_is_gone(api, cluster, start):
    pool, had = await served_before(cluster, start, announced=True)
    for name in had:
        await cluster.delete(name)
    controller = await start("second", settle=1.0, grace=Grace(0.0, 0.0))
    await cluster.until(lambda: _announced(cluster))
    await cluster.until(lambda: _used(cluster, pool, ipv4=0))
    assert controller.doubts == ["EIPs of Services", ""]
    lists = [
        query for _, path, query in api.fake.requests if path == "/api/v1/services" and "sendInitialEvents" in query
    ]
    assert len(lists) == 3, "one of the first leader, and two of the second"
