"""The other side of ``planted/sitecustomize.py``: what is planted into one speaker, and its switches."""

import mmap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

PLANTED = Path(__file__).with_name("planted")
ALWAYS = 0xFFFF_FFFF


class Switches:
    """``with Switches(directory, places) as switches: …``; what starts with ``environment`` has the faults."""

    def __init__(self, directory: Path, places: Sequence[str], constants: Mapping[str, float]) -> None:
        self._numbers = {place: number for number, place in enumerate(places)}
        self._directory = directory
        directory.mkdir(parents=True)
        lines = [*places, *(f"{name}={value}" for name, value in constants.items())]
        (directory / "places").write_text("".join(f"{line}\n" for line in lines))
        (directory / "switches").write_bytes(bytes(12 * max(1, len(places))))
        with (directory / "switches").open("r+b") as file:
            self._memory = memoryview(mmap.mmap(file.fileno(), 0)).cast("I")

    @property
    def environment(self) -> Mapping[str, str]:
        return {"PYTHONPATH": str(PLANTED), "SPEAKER_FAULTS": str(self._directory)}

    def raised(self, place: str) -> int:
        """How often, so far."""
        return self._memory[3 * self._numbers[place] + 1]

    def passed(self, place: str) -> int:
        """How often it did what it is there for, so far."""
        return self._memory[3 * self._numbers[place] + 2]

    def order(self, place: str, times: int) -> None:
        """To be raised so often from now on."""
        self._memory[3 * self._numbers[place]] = times

    @contextmanager
    def always(self, place: str) -> Iterator[None]:
        self.order(place, ALWAYS)
        try:
            yield
        finally:
            self.order(place, 0)
