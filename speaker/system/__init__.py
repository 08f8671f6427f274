"""Processes, clocks, files, signals, ports, and trying again: what any program on a host needs."""
