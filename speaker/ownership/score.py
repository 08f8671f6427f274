"""Who would hold an EIP if everything else were equal: rendezvous hashing, and a bound on what one node takes. Pure.

Every node, in every release, computes the same score from the same two names. As it decides between equal terms, it is
part of the protocol (docs/decisions/0013-rendezvous-score.md).
"""

from hashlib import blake2b

from speaker.model import IPAddress

_SLACK = 10
"""Percent. A node that has its share and so much more lets the others claim first. Rendezvous hashing alone gives 100
EIPs on 5 nodes a max/mean of 1.25 in the median (standard deviation of a node's count: 4 of 20)."""


def score(eip: IPAddress, node: str) -> int:
    """64 bits: BLAKE2b-8 over the node's name in UTF-8, a zero byte (names have none), and the packed address."""
    return int.from_bytes(blake2b(node.encode() + b"\0" + eip.packed, digest_size=8).digest(), "big")


def fair_share(eips: int, nodes: int) -> int:
    """How many of ``eips`` one of ``nodes`` takes before it lets others go first."""
    return -(-eips * (100 + _SLACK) // (100 * max(nodes, 1)))


def claim_hash(eip: IPAddress, term: int) -> int:
    """One claim's part of ``hello.Digest.sum``: BLAKE2b-8 over the packed address and the term's 8 bytes."""
    return int.from_bytes(blake2b(eip.packed + term.to_bytes(8, "big"), digest_size=8).digest(), "big")
