"""``keepalived.conf`` → ours. Pure but for ``files.py``; start reading at ``site.py``."""
