"""API objects, from files and from an API server alike, turned into the nouns of ``speaker.model``.

::

    YAML, JSON ──► plain data (standalone/document.py, knows lines) ─┐
                                                                     ├─► service, eip, endpoints ──► nouns
    API server ──► kinds, records (the fields that are decoded)     ─┘
                   └─ reading: the API's objects one at a time, as far as they can be read; files all or nothing

Plain data is what JSON or YAML gives: dict, list, str, int, float, bool, None. ``fields`` reads it, and notes every
mistake with its path, value and rule.
"""
