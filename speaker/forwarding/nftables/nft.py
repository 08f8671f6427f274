"""The ``nft`` program: one script is one transaction, which the kernel takes whole or not at all."""

from typing import Any

import msgspec

from speaker.errors import EdgeError
from speaker.system import programs
from speaker.system.decoding import UNFIT

LOOK_SECONDS = 10.0
"""For a look that is taken again and again: where nft hangs, people hear of it by then, and only a look is lost."""


class Refused(EdgeError):
    """Raised when nft ran and said no."""


class _Listing(msgspec.Struct):
    nftables: list[dict[str, Any]]


_listing = msgspec.json.Decoder(_Listing)


async def run(script: str, *, check: bool = False) -> None:
    """Hand ``script`` to the kernel as one transaction; with ``check`` the kernel only says whether it would.

    Raises Refused with nft's own words, EdgeError where it could not be run; nothing was changed then.
    """
    status, _, complaint = await _nft(*(["--check"] if check else []), "-f", "-", script=script)
    if status != 0:
        raise Refused(f"nft: {complaint}")


async def list_table(table: str) -> list[dict[str, Any]] | None:
    """What table ``inet`` ``table`` holds, as nft's JSON objects; None where there is none."""
    output = await list_object("table", "inet", table)
    return None if output is None else _listed(output, f"table inet {table}")


async def list_object(*what: str) -> bytes | None:
    """nft's JSON for ``list`` of ``"map", "ip", TABLE, NAME`` and its like; None where there is none."""
    # Numeric: whether nft prints `tcp` or 6 depends on /etc/protocols, which small images lack.
    status, output, complaint = await _nft("--json", "--numeric", "list", *what)
    if status == 0:
        return output
    if "No such file or directory" in complaint:
        return None
    raise EdgeError(f"nft list {' '.join(what)}: {complaint}")


async def list_chains() -> list[dict[str, Any]]:
    """Every program's chains, without their rules."""
    status, output, complaint = await _nft("--json", "list", "chains", seconds=LOOK_SECONDS)
    if status != 0:
        raise EdgeError(f"nft list chains: {complaint}")
    return _listed(output, "chains")


async def _nft(*arguments: str, script: str = "", seconds: float | None = None) -> programs.Ended:
    return await programs.run("nft", *arguments, text=script, seconds=seconds)


def _listed(output: bytes, what: str) -> list[dict[str, Any]]:
    """Raises EdgeError where nft has not printed what it prints: it was cut short, or is another program."""
    try:
        return _listing.decode(output).nftables
    except UNFIT as error:
        raise EdgeError(f"nft list {what}: its output cannot be read: {error}") from error
