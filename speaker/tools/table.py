"""Tables for people, of text that may come from strangers."""

from collections.abc import Iterable, Iterator, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines with the columns under each other; an empty cell is a dash."""
    cells = [head, *([printable(cell) or "-" for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def printable(text: str) -> str:
    """Names of peers come from the LAN: whoever has the key must not be able to speak to the operator's terminal."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
