"""When ``nft`` is asked again for kube-proxy's rules."""

import asyncio
import json
from ipaddress import ip_address

import pytest

from speaker.errors import EdgeError
from speaker.kubeproxy.judge import Mode, Rules
from speaker.kubeproxy.sight import Tables
from speaker.system.process import may_administer_network

pytestmark = pytest.mark.skipif(not may_administer_network(), reason="without NET_ADMIN nobody is asked")

ONE, TWO = "192.0.2.10", "192.0.2.11"


class Nftables:
    """``eips`` have rules, in both modes; ``asked`` lists what was listed."""

    def __init__(self):
        self.generation, self.eips, self.asked, self.fails = 7, [ONE], [], False

    def change(self, *eips):
        self.generation += 1
        self.eips = [*eips]

    async def lister(self, *what):
        if self.fails:
            raise EdgeError("nft: gone")
        self.asked.append(what)
        match what:
            case ("map", "ip", *_):
                elements = [[{"concat": [eip, "tcp", 80]}, {"goto": {"target": "x"}}] for eip in self.eips]
                return json.dumps({"nftables": [{"map": {"elem": elements}}]}).encode()
            case ("chain", "ip", "nat", "KUBE-SERVICES"):
                rules = [{"rule": {"expr": [destination(eip)]}} for eip in self.eips]
                return json.dumps({"nftables": rules}).encode()
        return None

    async def has_rules(self, tables, mode):
        """By what ``tables`` says; how much was listed for that."""
        before = len(self.asked)
        rules = await tables.rules(mode, {})
        return rules, len(self.asked) - before


def destination(eip):
    left = {"payload": {"protocol": "ip", "field": "daddr"}}
    return {"match": {"op": "==", "left": left, "right": eip}}


def of(*eips):
    return Rules(frozenset(map(ip_address, eips)))


@pytest.mark.parametrize("mode", [Mode.NFTABLES, Mode.IPTABLES])
def test_rules_are_listed_again_once_anybody_has_changed_nftables(mode):
    async def looks():
        nftables = Nftables()
        tables = Tables(nftables.lister, lambda: nftables.generation)
        rules, listed = await nftables.has_rules(tables, mode)
        assert (rules, listed > 0) == (of(ONE), True)
        assert await nftables.has_rules(tables, mode) == (of(ONE), 0)
        nftables.change(ONE, TWO)
        assert await nftables.has_rules(tables, mode) == (of(ONE, TWO), listed)
        assert await nftables.has_rules(tables, mode) == (of(ONE, TWO), 0)

    asyncio.run(looks())


def test_a_table_of_that_name_that_is_not_kube_proxys_is_looked_at_once():
    async def looks():
        asked = []

        async def lister(*what):
            asked.append(what)
            return b'{"nftables": [{"table": {"name": "kube-proxy"}}]}' if what == ("tables",) else None

        tables = Tables(lister, lambda: 7)
        for _ in range(2):
            rules = await tables.rules(Mode.NFTABLES, {})
            assert rules.why == "there is no map service-ips in the nftables table kube-proxy"
        assert len(asked) == len(set(asked))

    asyncio.run(looks())


def test_what_could_not_be_listed_is_not_remembered():
    async def looks():
        nftables = Nftables()
        tables = Tables(nftables.lister, lambda: nftables.generation)
        nftables.fails = True
        assert (await tables.rules(Mode.NFTABLES, {})).eips is None
        nftables.fails = False
        assert (await nftables.has_rules(tables, Mode.NFTABLES))[0] == of(ONE)

    asyncio.run(looks())


def test_what_changes_while_it_is_listed_is_listed_again():
    async def looks():
        nftables = Nftables()

        async def lister(*what):
            found = await nftables.lister(*what)
            nftables.change(TWO)
            return found

        tables = Tables(lister, lambda: nftables.generation)
        await tables.rules(Mode.NFTABLES, {})
        assert await tables.rules(Mode.NFTABLES, {}) == of(TWO)

    asyncio.run(looks())


def test_without_rights_or_a_kernel_that_has_nftables_it_cannot_be_told():
    def nobody():
        raise EdgeError("nftables: no such subsystem")

    rules = asyncio.run(Tables(Nftables().lister, nobody).rules(Mode.NFTABLES, {}))
    assert rules == Rules(None, "nftables: no such subsystem")
