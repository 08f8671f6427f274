"""``speaker controller``: which Service has which EIP, written into the Kubernetes API.

::

    Services, Eips, Namespaces ──► reading ──► settle (allocator) ──► wanted ──► desk ──► status, finalizers, Events

Pure are ``restore``, ``wanted`` and, over them all, ``decider``; ``desk`` writes, ``leader`` is the loop, ``run`` the
command.
"""
