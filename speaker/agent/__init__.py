"""``speaker agent``: one node of a cluster. The Kubernetes API says what is asked for, and keeps the records.

::

    Services, EndpointSlices, Eips, our Node ──► view ──► node/ (decide, forward, offer)
    Announcements, Leases ──► records ──► the wire process's ownership machine ──► writer ──► Announcements
                                          session ──► our Lease

Pure are ``view`` and ``record``. ``announcements`` reads and writes records, ``session`` writes our Lease and
says by that whether the API is up, ``mirrors`` helps the mirrors, and ``last_known`` keeps what the API said last.
``source`` is what runs.
"""
