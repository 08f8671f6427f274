"""Faults to practise on: each is injected in the lab's LAN, and ``speaker explain`` or ``doctor`` has to name it."""
