"""How often a conflict over an EIP is told of and fought. Pure.

RFC 5227 §2.4 (c): whoever must keep an address announces it again when another claims it, at most once in
``DEFEND_INTERVAL``, and never gives it up. Nobody is told of it more often than that, either.
"""

DEFEND_INTERVAL = 10.0
"""Seconds (RFC 5227 §1.1)."""


class Disputes:
    """When each EIP's conflict was last acted upon."""

    def __init__(self) -> None:
        self._acted: dict[bytes, float] = {}

    def act(self, address: bytes, now: float) -> bool:
        """Whether to tell of, and defend against, a rival for ``address`` heard at ``now``."""
        last = self._acted.get(address)
        if last is not None and now < last + DEFEND_INTERVAL:
            return False
        self._acted[address] = now
        return True

    def forget(self, address: bytes) -> None:
        """It is not ours any more; unknown ones are passed over."""
        self._acted.pop(address, None)
