"""``speaker agent``: one node of a cluster. The Kubernetes API says what is wanted, and keeps the records.

::

    Services, EndpointSlices, Eips, our Node ──► view ──► node/ (decide, forward, offer)
    Announcements, Leases ──► records ──► the wire process's ownership machine ──► writer ──► Announcements
                                          session ──► our Lease

``view`` and ``record`` are pure. ``announcements`` reads and writes records. ``session`` writes our Lease, and so
finds out whether the API is up. ``mirrors`` helps the mirrors, ``last_known`` keeps what the API said last, and
``source`` runs all of them.
"""
