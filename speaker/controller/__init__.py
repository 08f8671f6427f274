"""``speaker controller``: which Service has which EIP, written into the Kubernetes API.

::

    Services, Eips, Namespaces ──► decider: reading ──► settling ──► wanted ──┬─► write_queue ──► statuses, finalizers,
    Announcements ────────────────────────────────────► sweeper ──────────────┘                   Events, deletions

Pure are ``restore``, ``settling``, ``wanted``, ``sweeper`` and, over most of them, ``decider``: it hears what changed
and says what is to be written otherwise. ``write_queue`` writes, ``key`` makes the agents' key, ``marking`` takes
the endpoints of dead nodes out, ``leader`` is the loop, ``run`` the command.
"""
