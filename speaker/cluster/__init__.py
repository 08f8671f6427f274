"""The Kubernetes API: a transport, a reflector that mirrors one resource, elections on Leases, and what objects mean.

Pure are ``objects``, ``store``, ``feed``, ``elector``; ``kinds``, ``reading`` and ``pools``, which make nouns of what
the API holds; ``cel`` and ``crds``. ``client``, ``reflector`` and ``lease`` await the network and hand what they hear
to those.
"""
