"""Living beside kube-proxy, or whatever else implements Services here: detected, judged and reported, never touched.

::

    ports 10249, 10256  ─┐ (words)
    links, tables       ─┼─► sight ─► judge ─► problems, notes, metrics      (watch: the loop)
    what it forwards    ─┘                └─► may we serve healthCheckNodePort? (watch)

Pure are ``judge`` and ``health_checks``. What cannot be seen is reported as unknown. One thing delays the
data path: an endpoint that is new on this node counts for ``externalTrafficPolicy: Local`` only once kube-proxy sends
to it (``watch``, ``health_checks``).
"""
