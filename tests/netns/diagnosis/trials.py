"""An EIP that a node forwards to a pod, and a connection to it that is tried there."""

import asyncio
import subprocess
from dataclasses import replace

from speaker.diagnosis.facts import Facts, LinkSeen
from speaker.diagnosis.trying import try_all
from speaker.interfaces.watcher import look
from speaker.node.known.knowledge import Cut, Knowledge, KnownEip, KnownEndpoint, KnownService

EIP, POD = "192.0.2.200", "10.244.1.11"
EIP6, POD6 = "2001:db8::200", "fd00:10::11"
NAT = "type nat hook prerouting priority -100;"
DNAT = f"""
table ip own {{ chain p {{ {NAT} ip daddr {EIP} tcp dport 80 dnat to {POD}:8080; }}; }}
table ip6 own {{ chain p {{ {NAT} ip6 daddr {EIP6} tcp dport 80 dnat to [{POD6}]:8080; }}; }}
"""


def rules(node, text):
    with node.entered():
        subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)


def facts_of(eip, sources=()) -> Facts:
    held = KnownEip(eip, ("lab/web",), "lan", True, "n1", 1, 0.0, "", "", "eth0", "02:00:00:00:00:01")
    pod = KnownEndpoint(POD if eip == EIP else POD6, 8080, "TCP", "n1", True, True)
    web = KnownService("lab/web", ("TCP 80",), ("IPv4",), "Cluster", (eip,), ("lan",), Cut((pod,)), sources=sources)
    known = Knowledge("n1", "nftables", in_force=True, eips=Cut((held,)), services=Cut((web,)), links=("eth0",))
    return Facts(eip, known=known, links=(LinkSeen("eth0", held.mac, True, True, "veth"),))


def tried(node, eip=EIP, sources=()) -> Facts:
    facts = facts_of(eip, sources)

    async def act():
        return await try_all(facts, await look())

    with node.entered():
        walks = asyncio.run(act())
    return replace(facts, walks=walks)
