"""Who answers for an EIP: the rules of docs/ownership.md.

``eligibility`` says whether this node may, and ``machine`` decides whose turn it is, even if there is only one node.
``hellos`` has what nodes say to each other: bytes, keys, a socket. ``inquirer`` asks the wire. ``speaker/wire`` puts
them together.
"""
