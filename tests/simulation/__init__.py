"""Ownership machines on simulated LANs with a simulated API server, in virtual time; the promises as judge.

For tests, ``make fuzz`` and a curious operator: ``PYTHONPATH=tests python -m simulation --schedules 2000 --seed 1``.
"""
