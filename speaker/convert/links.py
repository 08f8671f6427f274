"""Regular expressions for link names, of which ours has none."""

import re

_NAME = re.compile(r"(?:[A-Za-z0-9_-]|\\\.)+")


def literal(expression: str) -> str | None:
    """The one name that the expression matches whole; None where it may match others."""
    inner = expression.removeprefix("^").removesuffix("$")
    return inner.replace("\\.", ".") if _NAME.fullmatch(inner) else None


def is_anchored(expression: str) -> bool:
    return expression.startswith("^") and expression.endswith("$")
