"""Hellos on a link: their bytes, the keys that sign them, and the socket they go through."""
