"""API objects (``Eip``, ``Service``, ``EndpointSlice``, ``Namespace``) as plain data, turned into the nouns of
``speaker.model``.

Plain data is what JSON or YAML gives: dict, list, str, int, float, bool, None. Where it came from does not matter
here: ``speaker.standalone`` reads files and knows lines, ``speaker.cluster`` reads the API server.
"""
