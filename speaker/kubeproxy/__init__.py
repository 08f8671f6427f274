"""Living beside kube-proxy, or whatever else implements Services here: seen, judged and reported; never touched.

::

    ports 10249, 10256  ─┐ (words)
    links, tables       ─┼─► sight ─► judge ─► problems, notes, metrics      (watch: the loop)
    what it forwards    ─┘                └─► may we serve healthCheckNodePort? (watch)

Pure are ``judge`` and ``health_checks``. What cannot be seen is said to be so. One thing is in the way of
the data path: an endpoint that is new on this node counts for ``externalTrafficPolicy: Local`` once kube-proxy sends to
it (``watch``, ``health_checks``).
"""
