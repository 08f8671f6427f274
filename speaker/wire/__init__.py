"""The wire process: what must never be late.

It holds the hellos, the claims and the answers to ARP and NDP, and does nothing that takes long: a node that is late by
the self-lease loses its EIPs (docs/decisions/0001-two-processes.md). ``remote.py`` is the main process's end,
``process.py`` the wire process's, and ``channel.py`` lies between them.
"""
