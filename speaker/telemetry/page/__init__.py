"""The status page: what a person looks at, read only and live (docs/page.md).

Pure are ``document`` and ``failovers``; ``live`` and ``server`` are the edge, and the rest is what a browser gets.
"""
