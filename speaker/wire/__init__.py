"""The wire process: what must never be late.

``speaker run`` starts one beside itself. It holds the hellos, the claims and the answers to ARP and NDP, and nothing
that takes long: reading 10,000 Services keeps a Python process from its sockets for hundreds of milliseconds (see
docs/decisions/0001-two-processes.md), and a node that is late by the self-lease loses its EIPs.

::

    main process                                   wire process
    remote.Wire       ── messages.Commands ──► process.Conversation ──► shared.SharedOwner
    node.Report, …    ◄── model/events.py ──── sender.EventSender ◄──── owner, layer 2

The first process is the wire process, and starts the main process: ``parent.py``.
"""
