"""Changes from one plan to another: complete, minimal, in a safe order, and readable."""

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speaker.forwarding.changes import Change, EipChange, RealChange, ServerChange, diff
from speaker.forwarding.plan import EMPTY, Plan, RealServer, VirtualServer, VirtualServerKey
from speaker.model import IPAddress, Protocol

KEY = (ip_address("192.0.2.10"), Protocol.TCP, 80)
ONE, TWO = (RealServer(ip_address(f"10.0.0.{last}"), 8080) for last in (3, 4))
SERVER = VirtualServer(*KEY, real_servers=(ONE, TWO))


def plan_of(*servers: VirtualServer) -> Plan:
    return Plan(frozenset(each.address for each in servers), {each.key: each for each in servers})


class Kernel:
    """Takes changes one by one and refuses what a kernel would refuse."""

    def __init__(self, plan: Plan) -> None:
        self.eips: set[IPAddress] = set(plan.eips)
        self.servers: dict[VirtualServerKey, VirtualServer] = dict(plan.virtual_servers)

    @property
    def plan(self) -> Plan:
        return Plan(frozenset(self.eips), self.servers)

    def take(self, change: Change) -> None:
        match change:
            case EipChange(eip, True):
                assert eip not in self.eips
                self.eips.add(eip)
            case EipChange(eip, False):
                self.eips.remove(eip)
            case ServerChange(None, server):
                assert server.key not in self.servers
                self.servers[server.key] = replace(server, real_servers=())
            case ServerChange(server, None):
                del self.servers[server.key]
            case ServerChange(before, after):
                kept = self.servers[before.key].real_servers
                self.servers[after.key] = replace(after, real_servers=kept)
            case RealChange(key, None, real):
                assert all((each.address, each.port) != (real.address, real.port) for each in self.real_servers(key))
                self.set_real_servers(key, {*self.real_servers(key), real})
            case RealChange(key, real, None):
                assert real in self.real_servers(key)
                self.set_real_servers(key, {*self.real_servers(key)} - {real})
            case RealChange(key, before, after):
                assert before in self.real_servers(key)
                self.set_real_servers(key, {after, *self.real_servers(key)} - {before})

    def real_servers(self, key: VirtualServerKey) -> tuple[RealServer, ...]:
        return self.servers[key].real_servers

    def set_real_servers(self, key: VirtualServerKey, real_servers: set[RealServer]) -> None:
        self.servers[key] = replace(self.servers[key], real_servers=tuple(sorted(real_servers)))


@given(data=st.data())
def test_the_changes_lead_from_one_plan_to_the_other(plans, data):
    have, want = data.draw(plans), data.draw(plans)
    kernel = Kernel(have)
    for change in diff(have, want):
        kernel.take(change)
    assert kernel.plan == want


@given(data=st.data())
def test_equal_plans_have_no_changes(plans, data):
    same = data.draw(plans)
    assert diff(same, same) == ()


@given(data=st.data())
def test_no_bound_eip_ever_lacks_a_virtual_server_that_it_has_before_and_after(plans, data):
    have, want = data.draw(plans), data.draw(plans)
    kernel = Kernel(have)
    for change in diff(have, want):
        kernel.take(change)
        for eip in kernel.eips - have.eips:  # new ones come complete
            assert {key for key in want.virtual_servers if key[0] == eip} <= kernel.servers.keys()
        for eip in kernel.eips - want.eips:  # old ones go complete
            assert {key for key in have.virtual_servers if key[0] == eip} <= kernel.servers.keys()


@given(data=st.data())
def test_a_virtual_server_never_runs_out_of_real_servers_on_the_way(plans, data):
    have, want = data.draw(plans), data.draw(plans)
    kernel = Kernel(have)
    lasting = [
        key
        for key in have.virtual_servers.keys() & want.virtual_servers.keys()
        if have.virtual_servers[key].real_servers and want.virtual_servers[key].real_servers
    ]
    for change in diff(have, want):
        kernel.take(change)
        assert all(kernel.real_servers(key) for key in lasting)


WORDS = [
    (
        plan_of(),
        plan_of(SERVER),
        [
            "+ TCP 192.0.2.10:80 rr",
            "  + 10.0.0.3:8080 weight 1 for TCP 192.0.2.10:80",
            "  + 10.0.0.4:8080 weight 1 for TCP 192.0.2.10:80",
            "+ EIP 192.0.2.10",
        ],
    ),
    (plan_of(SERVER), EMPTY, ["- EIP 192.0.2.10", "- TCP 192.0.2.10:80 rr"]),
    (
        plan_of(SERVER),
        plan_of(replace(SERVER, real_servers=(replace(ONE, weight=0), replace(TWO, port=9090)))),
        [
            "  + 10.0.0.4:9090 weight 1 for TCP 192.0.2.10:80",
            "  ~ 10.0.0.3:8080 weight 0 for TCP 192.0.2.10:80 (was 10.0.0.3:8080 weight 1)",
            "  - 10.0.0.4:8080 weight 1 for TCP 192.0.2.10:80",
        ],
    ),
    (
        plan_of(SERVER),
        plan_of(
            replace(SERVER, scheduler="sh", persistence=60, masquerade=False, sources=(ip_network("198.51.100.0/24"),))
        ),
        [
            "~ TCP 192.0.2.10:80 sh persistent 60s from 198.51.100.0/24 keeps the client's address"
            " (was TCP 192.0.2.10:80 rr)"
        ],
    ),
    (
        EMPTY,
        plan_of(VirtualServer(ip_address("2001:db8::10"), Protocol.UDP, 53)),
        ["+ UDP [2001:db8::10]:53 rr", "+ EIP 2001:db8::10"],
    ),
]


@pytest.mark.parametrize(("have", "want", "lines"), WORDS)
def test_changes_are_written_one_a_line(have, want, lines):
    assert list(map(str, diff(have, want))) == lines


def test_ipv4_comes_before_ipv6_and_ports_in_order():
    servers = [
        VirtualServer(ip_address(address), Protocol.TCP, port)
        for address, port in (("2001:db8::1", 1), ("192.0.2.9", 90), ("192.0.2.9", 80), ("10.0.0.1", 443))
    ]
    added = [change for change in diff(EMPTY, plan_of(*servers)) if isinstance(change, ServerChange)]
    assert [str(change.server) for change in added] == [
        "TCP 10.0.0.1:443 rr",
        "TCP 192.0.2.9:80 rr",
        "TCP 192.0.2.9:90 rr",
        "TCP [2001:db8::1]:1 rr",
    ]
