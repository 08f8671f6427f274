"""What the IPVS forwarder does to the kernel, and in which order."""

import errno
from ipaddress import ip_address

import pytest

from speaker.errors import EdgeError
from speaker.forwarding.changes import ServerChange, diff
from speaker.forwarding.ipvs.decisions import Draining
from speaker.forwarding.ipvs.forwarder import IpvsForwarder, KernelState, Step
from speaker.forwarding.ipvs.tables import Refusal
from speaker.forwarding.plan import EMPTY, Plan, VirtualServer
from speaker.model import Protocol

SERVER = VirtualServer(ip_address("192.0.2.1"), Protocol.TCP, 80)
STANDS = Plan(frozenset({SERVER.address}), {SERVER.key: SERVER})


class Guard:
    name = "guard"

    async def apply(self, _):
        return True


class Leaving(IpvsForwarder):
    """On a kernel that has one virtual server and ``refuses`` some changes; ``done``: by name."""

    def __init__(self, directory, *refuses):
        super().__init__(directory, Guard())
        self.refuses, self.done = refuses, []

    async def _do(self, work, *_):
        self.done.append(work.__name__)
        seen = KernelState(STANDS, frozenset(), {}, 7, fresh=True)
        answers = {
            "_step": Step(seen, STANDS, EMPTY, EMPTY, Draining(), diff(STANDS, EMPTY), ()),
            "_bring_to": self.refuses,
        }
        return answers.get(work.__name__)


async def test_arp_stays_strict_for_as_long_as_an_eip_stays_bound(tmp_path):
    stubborn = Leaving(tmp_path, Refusal(ServerChange(SERVER, None), errno.EPERM))
    with pytest.raises(EdgeError):
        await stubborn.apply(EMPTY)
    assert stubborn.done == ["_step", "_bring_to"]
    willing = Leaving(tmp_path)
    await willing.apply(EMPTY)
    assert willing.done == ["_step", "_bring_to", "_restore"]
