"""Edge: what ``speaker doctor`` finds here, for a process that shows it itself."""

import asyncio
from pathlib import Path


def examined(runtime_dir: Path) -> list[dict[str, str]]:
    """Each as ``report.finding_json`` has it. Blocks for some seconds, in a thread without a loop."""
    # Not needed where nobody looks.
    from speaker.diagnosis.doctor import findings
    from speaker.diagnosis.gather import gather
    from speaker.diagnosis.report import finding_json

    return [finding_json(each) for each in findings(asyncio.run(gather(runtime_dir)))]
