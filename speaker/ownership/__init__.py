"""Who answers for an EIP: the rules of docs/ownership.md.

``eligibility`` says whether this node may, ``machine`` whose turn it is among several nodes, and ``sole`` how a node
without peers keeps its deadline. ``hellos`` has what nodes say to each other: bytes, keys, a socket. ``inquirer`` asks
the wire. ``speaker/wire`` puts them together.
"""
