"""The Kubernetes API: a transport, a reflector that mirrors one resource, elections on Leases, and the CRDs.

Pure are ``store``, ``feed``, ``elector``, ``cel`` and ``crds``. ``client``, ``reflector`` and ``lease`` await the
network and hand what they hear to those. What objects mean is ``speaker.api``'s.
"""
