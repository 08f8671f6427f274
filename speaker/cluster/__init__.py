"""The Kubernetes API: a client, a reflector that mirrors one resource, and elections on Leases.

Pure are ``feed`` and ``Elector``. ``client``, ``reflector`` and ``lease`` await the network and hand what
they hear to those. What objects mean is ``speaker.api``'s.
"""
