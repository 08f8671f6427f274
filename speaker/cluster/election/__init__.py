"""Elections on Leases: one of many works, the others wait."""
