"""Who answers for an EIP: the rules of docs/ownership.md.

``eligibility`` says whether this node may, and ``machine`` whose turn it is, also where there is one node alone.
``hellos`` has what nodes say to each other: bytes, keys, a socket. ``inquirer`` asks the wire. ``speaker/wire`` puts
them together.
"""
