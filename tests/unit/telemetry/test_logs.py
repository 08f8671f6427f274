import io
import threading

from speaker.telemetry.logs import Writer


class Stalled(io.StringIO):
    """Takes nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        self.reached.set()
        self.go.wait()
        return super().write(text)


def test_lines_come_out_in_order_and_the_last_ones_before_the_end():
    out = io.StringIO()
    writer = Writer(out.write)
    for number in range(5000):
        writer.info(str(number))
    writer.finish()
    assert out.getvalue().split() == [str(number) for number in range(5000)]


def test_a_reader_that_stalls_holds_up_nobody_and_what_was_lost_is_told():
    out = Stalled()
    writer = Writer(out.write, most=10)
    writer.info("first")
    out.reached.wait()
    for number in range(25):
        writer.info(str(number))
    out.go.set()
    writer.finish()
    lines = out.getvalue().splitlines()
    assert lines == ["first", *map(str, range(10)), "15 lines were lost: nobody read them in time"]


def test_the_end_does_not_wait_for_a_reader_that_never_comes_back():
    out = Stalled()
    writer = Writer(out.write)
    writer.info("never read")
    writer.finish(seconds=0.01)
    out.go.set()


def test_a_disk_that_is_full_loses_lines_tells_how_many_and_takes_those_that_come_later():
    room, taken, refused = threading.Event(), io.StringIO(), threading.Event()

    def out(text: str) -> None:
        if not room.is_set():
            refused.set()
            raise OSError(28, "No space left on device")
        taken.write(text)

    writer = Writer(out)
    writer.info("lost")
    refused.wait()
    room.set()
    writer.info("kept")
    writer.finish()
    assert taken.getvalue().splitlines() == ["kept", "1 lines were lost: nobody read them in time"]
