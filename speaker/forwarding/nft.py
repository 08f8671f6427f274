"""The ``nft`` program: one script is one transaction, which the kernel takes whole or not at all."""

import asyncio
import os
from typing import Any

import msgspec

from speaker.errors import EdgeError, Unsupported


async def run(script: str, *, check: bool = False) -> None:
    """Hand ``script`` to the kernel as one transaction; with ``check`` the kernel only says whether it would.

    Raises EdgeError with nft's own words; nothing was changed then.
    """
    status, _, complaint = await _nft(*(["--check"] if check else []), "-f", "-", script=script)
    if status != 0:
        raise EdgeError(f"nft: {complaint}")


async def list_table(table: str) -> list[dict[str, Any]] | None:
    """What table ``inet`` ``table`` holds, as nft's JSON objects; None where there is none."""
    output = await list_object("table", "inet", table)
    listing: list[dict[str, Any]] | None = None if output is None else msgspec.json.decode(output)["nftables"]
    return listing


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
    status, output, complaint = await _nft("--json", "list", "chains")
    if status != 0:
        raise EdgeError(f"nft list chains: {complaint}")
    listing: list[dict[str, Any]] = msgspec.json.decode(output)["nftables"]
    return listing


async def _nft(*arguments: str, script: str = "") -> tuple[int, bytes, str]:
    try:
        process = await asyncio.create_subprocess_exec(
            "nft",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"},  # list_object reads its error message
        )
    except FileNotFoundError as error:
        raise Unsupported("the program nft is not installed (package nftables)") from error
    try:
        output, complaint = await process.communicate(script.encode())
    except asyncio.CancelledError:
        # Left running, it could commit after whatever comes next (`speaker cleanup`, another apply).
        process.kill()
        await process.wait()
        raise
    assert process.returncode is not None  # communicate() waited
    return process.returncode, output, " ".join(complaint.decode(errors="replace").split())
