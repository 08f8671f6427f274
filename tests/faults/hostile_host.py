"""A host on the LAN that means ill, and a client that asks all the while: ``python hostile_host.py ORDER``, JSON.

Runs in the namespace that it is started in until its standard input ends, and prints JSON. ``mode``: ``asks`` (the
client), one of ``FLOODS`` of who has no key, or what somebody says who has it (``KEY_HOLDERS``).
"""

import ctypes
import json
import os
import random
import socket
import sys
import time
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

import replies

from speaker.model import MAX_TERM, Mac
from speaker.ownership.hello import EVERYTHING, MAX_INCARNATION, Accused, Digest, Heard, Hello, Incarnation
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.keyfile import read_keys
from speaker.packets import arp, ndp, sockets
from speaker.packets.bpf import ACCEPT, load_half, load_word, only_if

CHANCE = random.Random(1)
ASK = 0.02
"""Seconds between two questions."""
JUMBO = 9000
TURN = 0.002


def goes_on():
    try:
        return os.read(0, 1) != b""
    except BlockingIOError:
        return True


def advertised(mac, address):
    return ndp.unsolicited_advertisement(ndp.advertisement_part(mac, address.packed))


def own_mac(link):
    return Mac(bytes.fromhex(Path(f"/sys/class/net/{link}/address").read_text().strip().replace(":", "")))


def some_mac():
    return Mac(bytes((2, *CHANCE.randbytes(5))))


def some_ipv6(prefix="2001:db8::"):
    return IPv6Address(int(IPv6Address(prefix)) + CHANCE.getrandbits(60))


# ── The client ──


def asks(order):
    """Of each EIP: how often it was asked for and answered, its longest silence in seconds, and who answered."""
    index, mac = socket.if_nametoindex(order["link"]), own_mac(order["link"])
    mine = (*only_if(load_word(0), int.from_bytes(mac[:4])), *only_if(load_half(4), int.from_bytes(mac[4:])), ACCEPT)
    ears = [sockets.open_socket(index, kind, mine, lambda _: None) for kind in (arp.ETHERTYPE, ndp.ETHERTYPE)]
    eips = [ip_address(each) for each in order["eips"]]
    seen = {eip: {"asked": 0, "answered": 0, "silence": 0.0, "macs": set()} for eip in eips}
    last = dict.fromkeys(eips, time.monotonic())
    source4, source6 = IPv4Address(order["source4"]), IPv6Address(order["source6"])

    def hear():
        for ear in ears:
            while True:
                try:
                    frame = ear.recv(2048)
                except BlockingIOError:
                    break
                if frame[12:14] == b"\x08\x06":
                    eip, sender = IPv4Address(frame[28:32]), frame[22:28]
                else:
                    eip, sender = IPv6Address(frame[62:78]), frame[6:12]
                if eip in last:
                    now = time.monotonic()
                    one = seen[eip]
                    one["silence"] = max(one["silence"], now - last[eip])
                    one["answered"] += 1
                    one["macs"].add(sender.hex(":"))
                    last[eip] = now

    turn = 0
    while goes_on():
        eip = eips[turn % len(eips)]
        turn += 1
        asked = arp.request(mac, source4, eip) if eip.version == 4 else ndp.solicitation(mac, source6, eip)
        ears[0].send(asked.pack())
        seen[eip]["asked"] += 1
        end = time.monotonic() + ASK
        while time.monotonic() < end:
            hear()
            time.sleep(0.001)
    for eip, at in last.items():
        seen[eip]["silence"] = max(seen[eip]["silence"], time.monotonic() - at)
    return {str(eip): {**one, "macs": sorted(one["macs"])} for eip, one in seen.items()}


# ── Floods of a stranger ──


def ndp_frames(eips):
    """Solicitations and advertisements, of EIPs and of others, from sources that nobody has, well-formed or spoilt."""
    ours = [eip for eip in eips if eip.version == 6]
    for number in range(4096):
        mac, target = some_mac(), CHANCE.choice(ours) if number % 2 else some_ipv6()
        match number % 8:
            case 0 | 1 | 2 | 3:
                yield ndp.solicitation(mac, some_ipv6("fe80::"), target).pack()
            case 4:
                yield ndp.solicitation(mac, IPv6Address("::"), target).pack()[:78]  # DAD, without an option
            case 5:
                whole = ndp.solicitation(mac, some_ipv6("fe80::"), target).pack()
                yield whole[:56] + b"\0\0" + whole[58:]  # its checksum is wrong
            case 6:
                yield advertised(mac, some_ipv6())
            case _:
                whole = ndp.solicitation(mac, some_ipv6("fe80::"), target).pack()
                yield whole[:21] + b"\x40" + whole[22:]  # it has passed a router


def jumbo_frames(eips):
    """Long ones with a request in front, tagged ones, and fragments."""
    for number in range(256):
        eip, mac = CHANCE.choice([each for each in eips if each.version == 6 or number % 4 < 3]), some_mac()
        if eip.version == 4:
            asked = arp.request(mac, IPv4Address("198.51.100.250"), eip).pack()
        else:
            asked = ndp.solicitation(mac, some_ipv6("fe80::"), eip).pack()
        match number % 4:
            case 0 | 1:
                yield asked + CHANCE.randbytes(JUMBO + 14 - len(asked))
            case 2:
                yield asked[:12] + b"\x81\x00" + CHANCE.choice((b"\x00\x00", b"\x00\x07")) + asked[12:]
            case _:  # an IPv6 fragment header before it
                part = bytes((58, 0, 0, number & 1)) + CHANCE.randbytes(4)
                yield asked[:18] + (len(asked) - 54 + 8).to_bytes(2) + b"\x2c" + asked[21:54] + part + asked[54:]


def spoof_frames(eips):
    """Says that EIPs are its own, under ever new MACs."""
    for number in range(4096):
        eip, mac = CHANCE.choice(eips), some_mac()
        if eip.version == 6:
            yield advertised(mac, eip)
        else:
            yield (replies.gratuitous_reply if number % 2 else replies.gratuitous_request)(mac, eip).pack()


FLOODS = {"ndp": ndp_frames, "jumbo": jumbo_frames, "spoof": spoof_frames}


def floods(order, made):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.bind((order["link"], 0))
    sock.setblocking(False)
    rate, sent, began = order["rate"], 0, time.monotonic()
    while goes_on():
        due = int((time.monotonic() - began) * rate)
        while sent < due:
            try:
                sock.send(made[sent % len(made)])
            except (BlockingIOError, OSError):
                break
            sent += 1
        time.sleep(TURN)
    return {"sent": sent, "rate": sent / (time.monotonic() - began)}


# ── Who has the key ──


def _eips(count):
    first = int(IPv4Address("10.0.0.0")) + CHANCE.getrandbits(20)
    return {IPv4Address(first + at): CHANCE.choice((1, 7, MAX_TERM)) for at in range(count)}


def names(eips, nodes):
    """Ever new ones, of the longest, that claim what nobody has."""
    name = CHANCE.choice((f"n{CHANCE.getrandbits(40)}", f"{CHANCE.getrandbits(60):0>253x}"))
    return {"node": name, "claims": _eips(150), "covers": None, "digest": Digest(CHANCE.getrandbits(32), 1)}


def crowd(eips, nodes):
    """A thousand nodes, each with ever more EIPs and addresses of its own, known and let go again."""
    return {
        "node": f"crowd{CHANCE.randrange(1000)}",
        "claims": _eips(60),
        "yielded": _eips(60),
        "own": frozenset(_eips(60)),
        "covers": None,
        "digest": Digest(CHANCE.getrandbits(32), CHANCE.getrandbits(64)),
    }


def words(eips, nodes):
    """Accusations, losses, requests, flags and numbers without sense, of nodes that are there and that are not."""
    made_up = [f"{CHANCE.getrandbits(60):0>200x}" for _ in range(12)]
    return {
        "node": f"w{CHANCE.randrange(50)}",
        "unanswered": frozenset(Accused(name, CHANCE.choice((4, 6))) for name in made_up),
        "lost": {name: CHANCE.randrange(101) for name in (*made_up, *nodes)},
        "probes": frozenset(nodes),
        "wants": frozenset(nodes),
        "direct": CHANCE.random() < 0.3,
        "draining": CHANCE.random() < 0.5,
        "deaf": CHANCE.random() < 0.5,
        "demoted": CHANCE.random() < 0.5,
        "routine": CHANCE.random() < 0.5,
        "links": CHANCE.randrange(256),
        "interval": CHANCE.randrange(65536),
        "revision": CHANCE.getrandbits(32),
        "clock": CHANCE.getrandbits(64),
        "moves": {eip: CHANCE.choice(made_up) for eip in eips},
    }


def lives(eips, nodes):
    """The nodes' own names, in lives that nobody had."""
    life = CHANCE.choice((MAX_INCARNATION, MAX_INCARNATION - 1, 1, CHANCE.getrandbits(63)))
    return {"node": CHANCE.choice(nodes), "incarnation": Incarnation(life), "draining": True, "covers": EVERYTHING}


def thief(eips, nodes):
    """Claims every EIP at the highest term, and never answers."""
    return {"node": "thief", "claims": dict.fromkeys(eips, MAX_TERM), "covers": None, "digest": Digest(len(eips), 1)}


def owner(eips, nodes):
    """Says that every EIP is its own address."""
    return {"node": "owner", "own": frozenset(eips), "covers": EVERYTHING}


KEY_HOLDERS = {each.__name__: each for each in (names, crowd, words, lives, thief, owner)}


def holds_the_key(order, says):
    """As fast as one process may. What it hears of the others it names, so that it counts as heard."""
    keys, link = read_keys(Path(order["key"])), order["link"]
    index, mac, eips = socket.if_nametoindex(link), own_mac(link), [ip_address(each) for each in order["eips"]]
    sock = sockets.open_socket(index, frames.ETHERTYPE, (ACCEPT,), lambda _: None)
    heard, sequence, sent, began = {}, int(time.time() * 1000) << 8, 0, time.monotonic()
    life = Incarnation(int(time.time()) << 31)
    listens_at = 0.0
    while goes_on():
        if (now := time.monotonic()) >= listens_at:
            listens_at = now + 0.05
            for _ in range(1000):
                try:
                    said = frames.decode(sock.recv(2048), keys)
                except BlockingIOError:
                    break
                if isinstance(said, Hello) and said.node in order["nodes"]:
                    heard[said.node] = Heard(said.incarnation, 10, said.link)
        sequence += 2
        fields = {"incarnation": life, "sequence": sequence, "clock": 0, "link": index, "heard": dict(heard)}
        fields |= says(eips, order["nodes"])
        for frame in frames.encode(Hello(**fields), keys, mac):
            try:
                sock.send(frame)
                sent += 1
            except BlockingIOError:
                break
        if order["rate"]:
            time.sleep(max(0.0, sent / order["rate"] - (time.monotonic() - began)))
    return {"sent": sent, "rate": sent / (time.monotonic() - began)}


def main():
    order = json.loads(sys.argv[1])
    os.set_blocking(0, False)
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL: it does not outlive the test
    eips = [ip_address(each) for each in order["eips"]]
    match order["mode"]:
        case "asks":
            told = asks(order)
        case flood if flood in FLOODS:
            told = floods(order, list(FLOODS[flood](eips)))
        case mode:
            told = holds_the_key(order, KEY_HOLDERS[mode])
    print(json.dumps(told))  # noqa: T201


if __name__ == "__main__":
    main()
