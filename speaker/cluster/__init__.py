"""The Kubernetes API: a transport, a reflector that mirrors one resource, and elections on Leases.

Nothing here knows a Service from a pool. Pure are ``objects``, ``store``, ``feed`` and ``elector``; ``client``,
``reflector`` and ``lease`` await the network and hand what they hear to those.
"""
