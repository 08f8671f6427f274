"""The same model as in a cluster, from a directory of YAML: ``speaker run DIR`` and ``speaker validate DIR``."""
