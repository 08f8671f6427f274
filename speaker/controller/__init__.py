"""``speaker controller``: which Service has which EIP, written into the Kubernetes API.

::

    Services, Eips, Namespaces ──► decider: reading ──► settling ──► wanted ──┬─► write_queue ──► statuses, finalizers,
    Announcements ────────────────────────────────────► announced ────────────┘                   Events, deletions

Pure are ``restore``, ``wanted``, ``announced``, ``sessions`` and, over most of them, ``decider``: it hears what changed
and says what is to be written otherwise. ``write_queue`` writes, ``marker`` takes the endpoints of dead nodes out,
``published`` shows what was decided, ``leader`` is the loop, ``run`` the command.
"""
