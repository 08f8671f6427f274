"""Somebody without the key, who would like to be believed."""

from collections.abc import Callable
from random import Random

from simulation.clock import Clock
from simulation.network import Network
from simulation.wire import key
from speaker.model import Mac
from speaker.ownership.hello import EVERYTHING, MAX_AGE, Heard, Hello, Incarnation
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.keys import Keys

_SETTLED = 0.1
"""Seconds after which a frame has arrived wherever it will: repeating it before would be a faster network."""
_FLOOD = 0.004
"""Seconds between two of its frames, on average."""


class Stranger:
    """Injects what it recorded, whole and damaged, and what it signs with a key of its own.

    It hears everything on every link and plays it on any.
    """

    def __init__(self, clock: Clock, network: Network, seed: int) -> None:
        self._clock, self._network, self._random = clock, network, Random(f"stranger {seed}")
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

    def play(self, lasts: float) -> None:
        until = self._clock.now + lasts

        def again() -> None:
            self._inject()
            if self._clock.now < until:
                self._clock.after(self._random.uniform(0, 2 * _FLOOD), again)

        again()

    def _inject(self) -> None:
        victim, by = self._random.choice(self._network.hosts), self._random.choice(self._network.hosts)
        link = self._random.choice(self._network.links)
        heard = [
            payload
            for at, on, payload, within in by.sent
            if isinstance(payload, bytes) and victim.index in within and (on != link or at < self._clock.now - _SETTLED)
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
        victim = self._random.choice(self._network.hosts)
        life = victim.machine.incarnation if victim.alive else Incarnation(1)
        hello = Hello(
            node=self._random.choice(self._network.hosts).name,
            incarnation=Incarnation(life + self._random.getrandbits(33)),
            sequence=self._random.getrandbits(20),
            clock=0,
            claims=dict.fromkeys(self._network.link_of, 1 << 30),
            covers=EVERYTHING,
            heard={victim.name: Heard(life, self._random.randrange(MAX_AGE), 1)},
        )
        return next(iter(frames.encode(hello, Keys(self._key), Mac(frame[6:12]))))
