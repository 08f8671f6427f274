"""The connections that the kernel remembers, and which of them it should forget."""
