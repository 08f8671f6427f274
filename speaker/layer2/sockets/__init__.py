"""Packet sockets: what the kernel lets through, how frames are read, how they are sent."""
