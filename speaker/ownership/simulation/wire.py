"""Hellos as bytes: what the edge (``hellos.py``) does with them, and a stranger who would like to be believed."""

from collections import Counter
from collections.abc import Callable, Iterator
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

from speaker.model import Mac
from speaker.ownership.hello import EVERYTHING, MAX_AGE, Heard, Hello, Incarnation
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.keys import Key, Keys

if TYPE_CHECKING:
    from speaker.ownership.simulation.world import Host, World

REPLAYED = "replayed"
_SETTLED = 0.1
"""Seconds after which a frame has arrived wherever it will: repeating it before would be a faster network."""


def key(name: str) -> Key:
    return Key(name.encode().ljust(32, b"."))


class Port:
    """The hello socket of one life of a host on one link."""

    def __init__(self, host: "Host", link: int) -> None:
        self._host, self._link = host, link
        self._mac = Mac(bytes((2, 0, 0, 0, link, host.index)))
        self._last: dict[frames.Sender, frames.Stamp] = {}
        self.refused: Counter[Enum | str] = Counter()

    def encode(self, hello: Hello, mtu: int) -> Iterator[bytes]:
        return frames.encode(hello, self._host.keys, self._mac, mtu)

    def read(self, frame: bytes) -> Hello | None:
        claimed = frames.peek(frame)
        if claimed is not None:
            sender, stamp = claimed
            last = self._last.get(sender)
            if last is not None and stamp[0] == last[0] and stamp <= last:
                self.refused[REPLAYED] += 1
                return None
        hello = frames.decode(frame, self._host.keys)
        if not isinstance(hello, Hello):
            self.refused[hello] += 1
            return None
        if hello.stamp > self._last.get((hello.node, hello.link), (0, 0, -1)):
            self._last[hello.node, hello.link] = hello.stamp
        return hello


class Stranger:
    """Injects what it recorded, whole and damaged, and what it signs with a key of its own.

    It hears everything on every link and plays it on any.
    """

    def __init__(self, world: "World", seed: int) -> None:
        self._world, self._random = world, Random(f"stranger {seed}")  # noqa: S311  a simulation guards nothing
        self._key = key("a stranger's")
        self._tricks: tuple[Callable[[bytes], bytes], ...] = (
            lambda frame: frame,
            self._flip,
            lambda frame: frame[: self._random.randrange(len(frame))],
            lambda frame: frame + bytes(self._random.randrange(1, 40)),
            lambda frame: self._random.randbytes(self._random.randrange(1, 200)),
            self._sign,
            lambda frame: frame[:6] + self._random.randbytes(6) + frame[12:],
        )

    def play(self, lasts: float, every: float) -> None:
        until = self._world.now + lasts

        def again() -> None:
            self._inject()
            if self._world.now < until:
                self._world.after(self._random.uniform(0, 2 * every), again)

        again()

    def _inject(self) -> None:
        victim, by = self._random.choice(self._world.hosts), self._random.choice(self._world.hosts)
        link = self._random.choice(self._world.links)
        heard = [
            payload
            for at, on, payload, within in by.sent
            if isinstance(payload, bytes) and victim.index in within and (on != link or at < self._world.now - _SETTLED)
        ]
        if heard and victim is not by and victim.alive:
            newest = heard[-1:] if self._random.random() < 0.5 else heard[-40:]
            frame = self._random.choice(self._tricks)(self._random.choice(newest))
            victim.hear(link, frame)

    def _flip(self, frame: bytes) -> bytes:
        at = self._random.randrange(len(frame) * 8)
        flipped = bytearray(frame)
        flipped[at // 8] ^= 1 << at % 8
        return bytes(flipped)

    def _sign(self, frame: bytes) -> bytes:
        """A hello that takes everything, well made but for its key."""
        victim = self._random.choice(self._world.hosts)
        life = victim.machine.incarnation if victim.alive else Incarnation(1)
        hello = Hello(
            node=self._random.choice(self._world.hosts).name,
            incarnation=Incarnation(life + self._random.getrandbits(33)),
            sequence=self._random.getrandbits(20),
            clock=0,
            claims=dict.fromkeys(self._world.eips, 1 << 30),
            covers=EVERYTHING,
            heard={victim.name: Heard(life, self._random.randrange(MAX_AGE), 1)},
        )
        return next(iter(frames.encode(hello, Keys(self._key), Mac(frame[6:12]))))
