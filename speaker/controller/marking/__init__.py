"""Pods of dead nodes are marked as not ready (``--mark-pods-not-ready``): ``dead`` decides whose, ``marker`` does."""
