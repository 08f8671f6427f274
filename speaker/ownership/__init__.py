"""Who answers for an EIP: the rules of docs/ownership.md.

``eligibility`` says whether this node may, ``machine`` whose turn it is among several nodes, and ``sole`` how a node
without peers keeps its deadline. ``frames`` and ``keys`` are hellos as authenticated bytes. Edges are the hello socket
(``hellos``), the key file and the questions on the wire (``inquirer``). ``speaker/wire`` puts them together.
"""
