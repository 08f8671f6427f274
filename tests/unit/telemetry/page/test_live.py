"""Who looks at the page is told what is so, and then what changes; nobody who looks costs anybody else anything."""

import asyncio
import json

import pytest

from speaker.telemetry.page.server import MOST, QUIET, Live


def shows(holder, eip="192.0.2.10"):
    return {"by": "n1", "eips": {eip: {"holder": holder}}}


def told(piece):
    """Event and data of each."""
    found = []
    for one in piece.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in one.splitlines() if ": " in line)
        if "event" in lines:
            found.append((lines["event"], json.loads(lines["data"])["eips"]))
    return found


class Site:
    def __init__(self):
        self.live, self.made = Live(), 0

    def show(self, holder):
        def make():
            self.made += 1
            return shows(holder)

        self.live.show(make)

    async def look(self):
        """A stream that has said when to come again."""
        stream = self.live.stream()
        assert (await anext(stream)).startswith(b"retry: ")
        return stream


@pytest.fixture
def play():
    """``play(story)``: with a page that is at work."""

    def played(story):
        async def whole():
            site = Site()
            running = asyncio.create_task(site.live.run())
            try:
                async with asyncio.timeout(60):
                    await story(site)
            finally:
                running.cancel()

        asyncio.run(whole())

    return played


def test_who_comes_is_told_all_and_then_what_changed(play):
    async def story(site):
        site.show("n1")
        stream = await site.look()
        assert told(await anext(stream)) == [("all", {"192.0.2.10": {"holder": "n1"}})]
        site.show("n2")
        assert told(await anext(stream)) == [("change", {"192.0.2.10": {"holder": "n2"}})]
        other = await site.look()
        assert told(await anext(other)) == [("all", {"192.0.2.10": {"holder": "n2"}})]
        await other.aclose()
        await stream.aclose()

    play(story)


def test_where_nobody_looks_nothing_is_made(play):
    async def story(site):
        for _ in range(3):
            site.show("n1")
            await asyncio.sleep(0.01)
        assert site.made == 0
        stream = await site.look()
        await anext(stream)
        await stream.aclose()
        made = site.made
        site.show("n2")
        await asyncio.sleep(0.3)
        assert site.made == made

    play(story)


def test_all_who_ask_for_the_whole_of_it_have_it_made_once_until_it_is_another(play):
    async def story(site):
        for number, holder in enumerate(["n1", "n2"], 1):
            site.show(holder)
            told = await asyncio.gather(*(site.live.now() for _ in range(20)))
            assert {json.loads(text)["eips"]["192.0.2.10"]["holder"] for text in told} == {holder}
            assert site.made == number

    play(story)


def test_who_comes_before_anything_is_known_is_told_when_it_is(play):
    async def story(site):
        assert await site.live.now() == b"{}"
        stream = await site.look()
        site.show("n1")
        assert [event for event, _ in told(await anext(stream))] == ["all"]
        await stream.aclose()

    play(story)


def test_there_is_room_for_so_many_and_who_leaves_makes_room(play):
    async def story(site):
        streams = [await site.look() for _ in range(MOST)]
        assert site.live.full
        await streams[0].aclose()
        assert not site.live.full
        for stream in streams[1:]:
            await stream.aclose()

    play(story)


def test_a_page_that_cannot_be_made_is_raised_to_whoever_supervises_and_the_next_one_is_told():
    async def story():
        live, holders = Live(), iter(["n1", None, "n2"])

        def make():
            if (holder := next(holders)) is None:
                raise KeyError("a bug")
            return shows(holder)

        live.show(make)
        stream = live.stream()
        await anext(stream)
        running = asyncio.create_task(live.run())
        assert [event for event, _ in told(await anext(stream))] == ["all"]
        live.show(make)
        with pytest.raises(KeyError):
            await running
        live.show(make)
        running = asyncio.create_task(live.run())
        assert told(await anext(stream)) == [("change", {"192.0.2.10": {"holder": "n2"}})]
        running.cancel()
        await stream.aclose()

    asyncio.run(story())


def test_who_hears_nothing_for_long_hears_that_we_live(in_virtual_time):
    async def story():
        live, loop = Live(), asyncio.get_running_loop()
        stream = live.stream()
        await anext(stream)
        begun = loop.time()
        assert await anext(stream) == b":\n\n"
        assert loop.time() - begun == pytest.approx(QUIET)
        await stream.aclose()

    in_virtual_time(story())
