"""Packets of TCP connections that began at another node: handed to who knows them, or dropped without a word."""
