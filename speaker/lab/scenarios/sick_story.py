"""The story of a sick link: who did what when, a table of what the clients saw, and what is promised of it."""

from speaker.lab.scenarios.endured import Endured
from speaker.lab.scenarios.failover_story import happened, tell
from speaker.lab.scenarios.scene import Scene
from speaker.lab.scenarios.sick_links import Line
from speaker.lab.timeline import Tone, columns


def show(scene: Scene, result: Endured) -> None:
    """The story, the table, and what is wrong, if anything is."""
    timeline = scene.stage.timeline
    tell(timeline, happened(scene), [_HEADING, *map(_row, result.lines)])
    for row in columns(totals(result)):
        timeline.write(row)
    timeline.write()
    for problem in result.problems:
        timeline.write(timeline.paint(f"✗ {problem}", Tone.BAD))
    tone, sign = (Tone.GOOD, "✓") if result.ok else (Tone.BAD, "✗")
    timeline.write(timeline.paint(f"{sign} {summary(result)}", tone))


_HEADING = ("EIP", "SEEN BY", "BEFORE", "AFTER", "MOVES", "TWICE ANSWERED FOR", "UNANSWERED FOR", "LOST")


def _row(line: Line) -> tuple[str, ...]:
    return (
        str(line.address),
        line.client,
        f"{line.before} (sick)" if line.sick else line.before,
        line.after,
        str(line.moves),
        f"{line.twice_ms:.0f} ms",
        f"{line.dark_ms:.0f} ms" if line.silence.over else "ever since",
        f"{line.silence.lost} of {line.silence.sent}",
    )


def totals(result: Endured) -> list[tuple[str, str]]:
    """What the issue asks for, as measured."""
    healthy, sick = result.eips(sick=False), result.eips(sick=True)
    most = _most(result)
    rows = [
        (
            "EIPs of healthy nodes that moved, each as a client saw it",
            f"{len(result.moved(sick=False))} of {len(healthy)}",
        ),
        ("EIPs of nodes out of a client's reach that moved", f"{len(result.moved(sick=True))} of {len(sick)}"),
        ("EIPs that left a healthy node, then or later", str(len(result.left))),
        ("EIPs that came to one of two holders at a heal", _settled(result)),
        (f"answered by two nodes, {most}", f"{result.twice_ms:.0f} ms"),
        (f"unanswered where a healthy node could, {most}", f"{result.worst.dark_ms:.0f} ms"),
    ]
    if result.course.claims is None:
        rows.append(("claims while it lasted", str(result.meanwhile)))
        rows.append(("claims after it", str(result.afterwards)))
    else:
        rows.append(("claims until the second flap was over", str(result.meanwhile)))
        rows.append(("claims from then on", str(result.afterwards)))
    return rows


def _settled(result: Endured) -> str:
    lines = {line.address: line for line in result.lines}
    elsewhere = [address for address in result.settled if lines[address].after != lines[address].before]
    return f"{len(result.settled)}, {len(elsewhere)} of them not to the one that had it before"


def summary(result: Endured) -> str:
    """What was measured, beside what is promised of it."""
    most, worst = _most(result), result.worst
    told = [
        f"{len(result.left)} EIPs left a healthy node" + (" (promised: 0)" if result.course.promise.still else ""),
        f"two answers for {result.twice_ms:.0f} ms {most} (promised: {result.twice_owed_ms:.0f})",
        f"no answer for {worst.dark_ms:.0f} ms {most} (promised: {worst.owed_ms:.0f})",
    ]
    if result.course.claims is not None:
        after = result.afterwards
        told.append(f"{after.number} claims in the {after.seconds:.0f} s after the second flap")
        told[-1] += f" (promised: {result.course.claims.most} in a minute)"
    return f"{result.scenario}: {'; '.join(told)}"


def _most(result: Endured) -> str:
    return "in sum at most" if result.course.promise.in_sum else "at most"
