"""EIPs of simulated clusters. A module of its own, since ``.ci/compiled.py`` cannot compile a class of this kind."""

from ipaddress import IPv4Address


class Address(IPv4Address):
    """One that works out its hash once: half of what is looked up is looked up by EIP."""

    def __init__(self, address: int | str) -> None:
        super().__init__(address)
        self._hash = super().__hash__()

    def __hash__(self) -> int:
        return self._hash
