"""Processes, clocks, files, signals, ports, and retrying: what any program on a host needs."""
