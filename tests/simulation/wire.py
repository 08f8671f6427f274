"""Hellos as bytes: what the edge (``hellos.py``) does with them."""

from collections import Counter
from collections.abc import Iterator
from enum import Enum

from speaker.model import Mac
from speaker.ownership.hello import Hello
from speaker.ownership.hellos import frames
from speaker.ownership.hellos.keys import Key, Keys

REPLAYED = "replayed"


def key(name: str) -> Key:
    return Key(name.encode().ljust(32, b"."))


class Port:
    """The hello socket of one life of host number ``index`` on one link."""

    def __init__(self, index: int, link: int) -> None:
        self._mac = Mac(bytes((2, 0, 0, 0, link, index)))
        self._last: dict[frames.Sender, frames.Stamp] = {}
        self.refused: Counter[Enum | str] = Counter()

    def encode(self, hello: Hello, keys: Keys, mtu: int) -> Iterator[bytes]:
        return frames.encode(hello, keys, self._mac, mtu)

    def read(self, frame: bytes, keys: Keys) -> Hello | None:
        claimed = frames.peek(frame)
        if claimed is not None:
            sender, stamp = claimed
            last = self._last.get(sender)
            if last is not None and stamp[0] == last[0] and stamp <= last:
                self.refused[REPLAYED] += 1
                return None
        hello = frames.decode(frame, keys)
        if not isinstance(hello, Hello):
            self.refused[hello] += 1
            return None
        if hello.stamp > self._last.get((hello.node, hello.link), (0, 0, -1)):
            self._last[hello.node, hello.link] = hello.stamp
        return hello
