"""Who may answer for an EIP.

``run.py`` uses ``eligibility`` and ``sole``, a speaker without rivals. ``machine`` (the state machine for several
nodes), ``frames`` and ``keys`` (what they say to each other, authenticated) are complete by themselves and not wired
to a socket yet.
"""
