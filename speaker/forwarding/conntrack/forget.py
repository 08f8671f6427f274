"""The kernel's table of connections, through pyroute2, which takes 12 MB: loaded when there is something to forget."""

from collections.abc import Callable, Iterable

from speaker.errors import EdgeError
from speaker.forwarding.conntrack.flows import Flow
from speaker.forwarding.plan import VirtualServerKey


async def forget(keys: Iterable[VirtualServerKey], goes_on: Callable[[Flow], bool]) -> int:
    """Forget every connection to these virtual servers that does not go on; how many. Raises EdgeError."""
    if not (found := tuple(keys)):
        return 0
    try:
        from speaker.forwarding.conntrack import table as conntrack_table
    except (ImportError, OSError) as error:  # no descriptor is left
        raise EdgeError(f"conntrack: {error}") from error
    return await conntrack_table.forget(found, goes_on)
