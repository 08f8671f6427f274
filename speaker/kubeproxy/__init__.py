"""Living beside kube-proxy, or whatever else implements Services on this node: seen, judged, and told; never touched.

::

    ports 10249, 10256  (signs)  ─┐
    links, tables       (kernel) ─┼─► recognise ─► judge ─► problems, notes, metrics      (watch: the loop)
    what it forwards    (kernel) ─┘   listings                 └─► may we serve healthCheckNodePort? (health_server)

Pure are ``recognise``, ``listings``, ``judge``, ``health_checks`` and ``local_endpoints``. What cannot be seen is said
to be so. One thing is in the way of the data path: an endpoint that is new on this node counts for
``externalTrafficPolicy: Local`` once kube-proxy sends to it (``endpoint_watch``, ``local_endpoints``).
"""
