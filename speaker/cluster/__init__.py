"""The Kubernetes API: a client, a reflector that mirrors one resource, and elections on Leases.

``feed`` and ``Elector`` are pure. ``client``, ``reflector`` and ``lease`` talk to the network and pass what they
hear to those. ``speaker.api`` knows what objects mean.
"""
