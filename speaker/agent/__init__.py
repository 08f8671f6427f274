"""``speaker agent``: one node of a cluster. The Kubernetes API says what is asked for, and keeps the records.

::

    Services, EndpointSlices, Eips, our Node ──► view ──► node/ (decide, forward, offer)
    Announcements, Leases ──► records ──► the wire process's ownership machine ──► writer ──► Announcements
                                          session ──► our Lease

Pure are ``view`` and ``record``. ``announcement_writer`` and ``session`` write,
``announcement_reader`` hands on what records say, ``api_state`` tells whether the API is up, ``last_known`` keeps what
it said. ``source`` is what runs, ``run`` the command.
"""
