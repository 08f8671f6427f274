"""Forwarding with IPVS: its tables, its settings, and the dummy link that EIPs are bound to."""
