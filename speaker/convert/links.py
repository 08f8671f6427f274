"""Links that peers name by regular expressions, which ours are not."""

import re

from speaker.api.fields import Field
from speaker.convert.document import Document

_NAME = re.compile(r"(?:[A-Za-z0-9_-]|\\\.)+")


def link(document: Document, value: Field) -> str | None:
    """The one name that the expression matches whole; None where it may match others. What is more than a name, or
    less, is listed."""
    expression = document.take(value).require().text() or ""
    inner = expression.removeprefix("^").removesuffix("$")
    name = inner.replace("\\.", ".") if _NAME.fullmatch(inner) else None
    if name is None or expression != f"^{inner}$":
        why = "is a regular expression: here links have names" + (f", and {name} is taken for one" if name else "")
        document.leave(value.path, why, "write the links into the pools' interface, in order of preference")
    return name
