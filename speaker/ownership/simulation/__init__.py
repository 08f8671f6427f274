"""Ownership machines on simulated LANs with a simulated API server, in virtual time; the promises as judge.

For tests, ``make fuzz`` and a curious operator: ``python -m speaker.ownership.simulation --schedules 2000 --seed 1``.
"""
