"""Living beside kube-proxy, or whatever else implements Services on this node: seen, judged, and told; never touched.

::

    ports 10249, 10256  (signs)  ─┐
    links, tables       (kernel) ─┼─► recognise ─► judge ─► problems, notes, metrics      (watch: the loop)
    what it forwards    (kernel) ─┘   listings                 └─► may we serve healthCheckNodePort? (health_server)

Pure are ``recognise``, ``listings``, ``judge`` and ``health_checks``. Nothing of it is in the way of the data path;
what cannot be seen is said to be so.
"""
