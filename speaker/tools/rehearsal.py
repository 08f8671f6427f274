"""What a running speaker would do with manifests, short of doing it: decide, and write it down for the kernel.

``validate`` and ``run --dry-run`` go through it, so that nothing is called right over which a speaker would stumble.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb

from speaker.allocator.assign import Allocator
from speaker.allocator.settle import Settlement, settle
from speaker.errors import InvalidField, InvalidManifests, Place, SpeakerError
from speaker.forwarding.changes import diff
from speaker.forwarding.nftables import ruleset
from speaker.forwarding.nftables.ruleset import approximations, expressible, forwarder_ruleset, guard_ruleset
from speaker.forwarding.plan import EMPTY
from speaker.interfaces.snapshot import Snapshot
from speaker.model import World
from speaker.node.decide import decide
from speaker.settings import Node
from speaker.system.files import shown


def settled(allocator: Allocator, world: World, now: float) -> Settlement:
    """As ``settle``; raises what a running speaker would set a Service aside for."""
    settlement = settle(allocator, world, now)
    for error in settlement.failed.values():
        raise error
    return settlement


def rehearse(world: World, settlement: Settlement) -> None:
    """On a host without any link: what is decided of those is not in the manifests."""
    decision = decide(world, settlement.assignments, Snapshot({}), Node("rehearsal"))
    plan = expressible(decision.forwarding)
    for made in (forwarder_ruleset(plan), guard_ruleset(plan)):
        ruleset.rebuild_script(made)
    diff(EMPTY, plan)
    approximations(plan)


@contextmanager
def foreseen(directory: Path) -> Iterator[None]:
    """What nobody foresaw, which a running speaker would come upon as well, is a mistake of these manifests.

    Raises InvalidManifests with what it was and where.
    """
    try:
        yield
    except SpeakerError:
        raise
    except Exception as error:
        at = extract_tb(error.__traceback__)[-1]
        where = f"{Path(at.filename).name}:{at.lineno}"
        rule = f"a running speaker would fail on these manifests: {error} ({where}), which is a bug in the speaker"
        raise InvalidManifests(
            (InvalidField("", type(error).__name__, rule, place=Place(shown(directory))),)
        ) from error
