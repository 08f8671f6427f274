"""Manifests of other balancers → ours. Pure; start reading at ``conversion.py``.

One module for each peer knows the fields of its kinds by name. Nothing is dropped in silence: every value of a document
is converted or listed with a reason (``document.py``). What cannot be read makes a pool smaller or leaves it out.
"""
