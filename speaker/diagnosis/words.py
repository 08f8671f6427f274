"""Values as people read them. Pure."""

from collections.abc import Sequence


def some(names: Sequence[str], most: int = 5) -> str:
    """The first of them, and how many more there are."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
