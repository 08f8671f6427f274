"""``speaker controller``: which Service has which EIP, written into the Kubernetes API.

::

    Services, Eips, Namespaces ──► decider: reading ──► settling ──► wanted ──┬─► write_queue ──► statuses, finalizers,
    Announcements ────────────────────────────────────► announced ────────────┘                   Events, deletions

``restore``, ``wanted``, ``announced`` and ``sessions`` are pure, and so is ``decider`` above them. It hears what
changed and says what has to be written. ``write_queue`` writes, ``marker`` marks the pods of dead nodes, ``published``
shows what was decided, ``leader`` is the loop, and ``run`` the command.
"""
