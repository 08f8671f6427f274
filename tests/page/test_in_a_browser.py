"""The page in Debian's Chromium: what it shows, follows, costs, and whom it shuts out."""

import pytest

from speaker.allocator.assign import Usage
from speaker.model import Family
from speaker.telemetry.page.document import document, eip, examination

NODES = ("node-a", "node-b", "node-c")
SINCE = "2026-11-23T02:00:00.000Z"
LOOKS = {
    "light": {"width": 960, "height": 900, "theme": "light"},
    "dark": {"width": 960, "height": 900, "theme": "dark"},
    "phone": {"width": 390, "height": 1000, "theme": "light"},
    "phone-dark": {"width": 320, "height": 800, "theme": "dark"},
}
LIVE = "document.getElementById('link').textContent === 'live'"
LISTED = "document.getElementById('eips').ariaRowCount - 1"
FIRST_HOLDER = "document.querySelector('#rows [role=cell]:nth-child(2)').textContent"
NASTY = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
UNSEEN = "not seen from here"
MANY = 5000


def failover(count=1, **fields):
    eips = [f"192.0.2.{number}" for number in range(min(count, 10))]
    told = {"at": SINCE, "from": "node-a", "to": "node-b", "eips": eips, "count": count, "unanswered": [0.231, 0.231]}
    return told | fields


def made_up(count=40, moved="node-a", failovers=(), problems=(), refused=(), **more):
    """A document; ``moved`` holds the first EIP."""
    eips = {
        f"10.0.{number // 250}.{number % 250}": eip("lan", [f"default/web-{number}"], NODES[number % 3], SINCE)
        for number in range(count)
    }
    for first in [*eips][:1]:
        eips[first] = eip("lan", ["default/web-0"], moved, SINCE)
    pools = {"lan": {Family.IPV4: Usage(254, 200, 12)}, "dmz": {Family.IPV4: Usage(16, 16, 0)}}
    return document("node-b", "host", eips | more, pools, list(failovers), problems, refused, NODES)


def with_trouble():
    return made_up(
        failovers=[failover(), failover(312, unanswered=[0.201, 0.312], **{"from": "node-c", "to": "node-a"})],
        problems=["conntrack: 92 % of 65536 entries are in use: raise nf_conntrack_max"],
        refused=[("default/late", "pool_full", "no free address: dmz")],
        **{
            "10.0.9.1": eip("lan", ["default/dns"], None, message="eth0: it is down"),
            "2001:db8::10": eip("six", ["default/v6"], "node-c", SINCE, "02:00:00:00:00:99 on eth0 uses it too"),
        },
    )


def opened(browser):
    browser.run("document.querySelectorAll('#problems details').forEach((each) => { each.open = true; })")


def find(browser, words):
    browser.run(
        "const it = document.getElementById('filter'); it.value = arguments[0]; it.dispatchEvent(new Event('input'))",
        words,
    )


def looking(browser, page, told):
    page.show(told)
    browser.open(page.url)
    browser.until(LIVE + f" && {LISTED} === {len(told['eips'])}")


@pytest.mark.parametrize("look", LOOKS)
def test_it_fits_the_screen_in_both_themes_and_is_accessible(browser, page, look):
    browser.look(**LOOKS[look])
    looking(browser, page, with_trouble())
    assert browser.accessibility() == []
    assert browser.run("return document.documentElement.scrollWidth") == LOOKS[look]["width"]
    dark = browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 27)"
    assert dark == (LOOKS[look]["theme"] == "dark")


def test_what_is_wrong_comes_first_and_where_nothing_is_there_is_no_such_section(browser, page):
    looking(browser, page, with_trouble())
    assert browser.run("return document.querySelector('main section').id") == "problems-section"
    assert [*filter(None, browser.text("#problems-section").splitlines())] == [
        "What is wrong: 2",
        "conntrack: 92 % of 65536 entries are in use: raise nf_conntrack_max",
        "default/late: no free address: dmz",
    ]
    assert browser.run("return document.getElementById('counts').innerText.replace(/\\s+/g, ' ')") == (
        "42 EIPs in use 1 held by nobody 1 in conflict with a stranger 1 Service that lacks something"
    )
    browser.run("document.querySelectorAll('#counts button')[1].click()")
    assert browser.text("#found") == "1 of 42 EIPs", "the one in conflict"
    page.show(made_up())
    browser.until("document.getElementById('problems-section').hidden")
    assert browser.text("#counts") == "40 EIPs in use"


def test_what_is_wrong_is_grouped_by_kind_with_a_count_and_what_breaks_most_leads(browser, page):
    refused = [(f"default/late-{number}", "pool_full", "no free address: dmz") for number in range(30)]
    findings = [
        {"kind": "peer_silent", "severity": "warning", "eips": 40, "docs": "docs/a.md"},
        {"kind": "forwarding_off", "severity": "error", "eips": 264, "docs": "docs/b.md"},
    ]
    told = made_up(problems=["node-c is silent", "ip_forward is 0"], refused=refused) | {"findings": findings}
    looking(browser, page, told)
    opened(browser)
    each = browser.run(
        "return [...document.querySelectorAll('#problems > li')].map(x => x.innerText.split('\\n').filter(Boolean))"
    )
    more = [f"default/late-{number}: no free address: dmz" for number in (1, 10, 11)]
    assert each == [
        ["ip_forward is 0 264 EIPs", "docs/b.md"],
        ["default/late-0: no free address: dmz", *more, "and 26 more of this kind"],
        ["node-c is silent 40 EIPs", "docs/a.md"],
    ]
    assert browser.run("return document.querySelectorAll('#problems a').length") == 0, "nobody said where the docs are"
    assert browser.accessibility() == []


def test_what_the_doctor_found_is_on_it_once_with_what_mends_it_and_where_none_was_asked_nothing_is(browser, page):
    found = {
        "kind": "x",
        "severity": "error",
        "eip": "",
        "what": f"rp_filter is 1 {NASTY}",
        "mend": "sysctl -w a=2",
        "docs": "docs/a.md",
    }
    looking(browser, page, made_up())
    assert browser.run("return document.getElementById('problems-section').hidden")
    findings = [{"kind": "x", "severity": "error", "eips": 7, "docs": "docs/a.md"}]
    told = made_up(problems=["rp_filter"]) | {"findings": findings}
    page.show(told | {"doctor": examination(0.0, [found])})
    browser.until("document.querySelectorAll('#problems li').length === 1")
    opened(browser)
    assert [*filter(None, browser.text("#problems li").splitlines())] == [
        *(f"{found['what']} 7 EIPs", "To mend: sysctl -w a=2", "docs/a.md")
    ]
    assert browser.text("#examined").startswith("The doctor looked at this host ")
    assert browser.accessibility() == []
    browser.run("document.querySelector('#problems summary').focus()")
    page.show(made_up(7, problems=["rp_filter"]) | {"findings": findings, "doctor": examination(0.0, [found])})
    browser.until(LISTED + " === 7")
    assert browser.run("return document.activeElement.closest('details').open"), "news close nothing that one reads"
    page.show(made_up() | {"doctor": examination(0.0, [])})
    browser.until("!document.querySelector('#problems li')")
    assert browser.text("#problems-title") == "Nothing is wrong, as far as is seen"


def test_once_somebody_said_where_the_docs_are_they_are_linked(browser, page):
    looking(browser, page, made_up(1))
    browser.run("document.querySelector('link[rel=help]').href = 'https://example.org/docs/'")
    finding = {"kind": "x", "severity": "error", "eips": 1, "docs": "docs/operations.md#several-hosts"}
    page.show(made_up(problems=["a problem"]) | {"findings": [finding]})
    browser.until("document.querySelector('#problems a')")
    link = browser.run("return document.querySelector('#problems a').href")
    assert link == "https://example.org/docs/operations.md#several-hosts"


def pressed_in(browser, node, across):
    """A click on a cell of the node's column."""
    browser.run(
        "const it = [...document.querySelectorAll('#nodes li')].find((x) => x.innerText.startsWith(arguments[0]))"
        ".lastElementChild; const box = it.getBoundingClientRect();"
        "const at = { clientX: box.left + 16 * arguments[1] + 8, clientY: box.top + 8, bubbles: true };"
        "it.dispatchEvent(new MouseEvent('click', at))",
        *(node, across),
    )
    return browser.run("return document.getElementById('filter').value")


def test_each_eip_is_a_cell_in_its_nodes_column_and_one_that_moves_is_in_the_others(browser, page):
    looking(browser, page, made_up(9))
    assert [pressed_in(browser, "node-a", across) for across in range(3)] == ["10.0.0.0", "10.0.0.3", "10.0.0.6"]
    painted = (
        "const it = document.getElementById('picture'), all = it.getContext('2d')"
        ".getImageData(0, 0, it.width, it.height).data;"
        "return new Set(Array.from({length: all.length / 4}, (_, i) => all.slice(4 * i, 4 * i + 4).join())).size"
    )
    assert browser.run(painted) >= 4, "the ground, and a colour for each node"
    find(browser, "")
    page.show(made_up(9, moved="node-b"))
    browser.until("document.querySelectorAll('#nodes li')[1].innerText.includes('4 EIPs')")
    assert pressed_in(browser, "node-b", 0) == "10.0.0.0"
    assert pressed_in(browser, "node-a", 0) == "10.0.0.3"


def columns(browser):
    return browser.run("return [...document.querySelectorAll('#nodes li')].map(x => x.innerText.replace('\\n', ': '))")


def test_a_node_that_is_not_heard_keeps_its_column(browser, page):
    nodes = [{"node": "node-a", "eips": 9}, {"node": "z", "eips": 0, "silent": True}]
    looking(browser, page, made_up(9) | {"nodes": nodes})
    assert columns(browser) == ["node-a: 9 EIPs", "z: not heard"]


@pytest.mark.parametrize(("role", "says"), [("host", "not heard"), ("controller", "0 EIPs")])
def test_one_that_others_took_over_from_has_a_column_and_a_controller_does_not_say_that_it_is_dead(
    browser, page, role, says
):
    looking(browser, page, made_up(9, failovers=[failover(**{"from": "gone"})]) | {"role": role})
    assert columns(browser)[-1] == f"gone: {says}"


def test_a_node_that_is_called_nobody_is_not_nobody(browser, page):
    eips = {"10.0.9.1": eip("lan", [], None), "10.0.9.2": eip("lan", [], "nobody")}
    nodes = [{"node": "nobody", "eips": 1}]
    looking(browser, page, made_up(0, **eips) | {"nodes": nodes})
    assert columns(browser) == ["nobody: 1 EIP", "nobody: 1 EIP"]
    assert pressed_in(browser, "nobody", 0) == "10.0.9.2"


@pytest.mark.parametrize(
    ("eips", "hidden"), [((40, 0, 0), False), ((39, 1, 0), True), ((3, 0, 0), True), ((40,), True)]
)
def test_where_one_of_several_holds_all_the_command_that_spreads_them_is_there(browser, page, eips, hidden):
    nodes = [{"node": node, "eips": number} for node, number in zip(NODES, eips, strict=False)]
    looking(browser, page, made_up() | {"nodes": nodes})
    assert browser.run("return document.getElementById('balance').hidden") == hidden


def test_failovers_of_the_last_day_are_on_an_axis_of_time_as_high_as_they_were_silent(browser, page):
    ago = "return new Date(Date.now() - arguments[0] * 3600e3).toISOString()"
    times = [browser.run(ago, hours) for hours in (0.0, 12, 30)]
    told = [failover(at=at, unanswered=[0.2, took]) for at, took in zip(times, (0.5, 1.0, 9.0), strict=True)]
    looking(browser, page, made_up(failovers=told))
    bars = browser.run(
        "return [...document.querySelectorAll('#axis i')].map(x => [x.style.left, x.style.height].map(parseFloat))"
    )
    assert [[round(number) for number in each] for each in bars] == [[100, 50], [50, 100]]
    assert browser.text("#top") == "1.0 s"


def test_a_failover_is_on_it_while_one_looks_with_its_duration_and_is_read_out(browser, page):
    looking(browser, page, made_up())
    browser.run("window.before = document.querySelector('#rows > *')")
    page.show(made_up(moved="node-b", failovers=[failover()]))
    browser.until(FIRST_HOLDER + " === 'node-b'")
    assert browser.text("#failovers .took") == "0.231 s"
    assert browser.text("#failovers .who") == "192.0.2.0: node-b in place of node-a"
    assert browser.text("#news") == "192.0.2.0: node-b in place of node-a, after 0.231 s"
    assert browser.run("return window.before.isConnected"), "nothing was loaded or built anew"


def test_eips_come_and_go_in_the_order_of_addresses(browser, page):
    looking(browser, page, made_up(3))
    six = ("2001:db8::10", "2001:db8::9", "2001:db8:1::", "2001:db8::1:0", "fd00::", "::1")
    page.show(made_up(2, **{each: eip("lan", [], None) for each in ("10.0.0.100", *six, "10.0.0.20")}))
    browser.until(LISTED + " === 10")
    names = browser.run(
        "return [...document.querySelectorAll('#rows [role=cell]:first-child')].map(x => x.textContent)"
    )
    assert names[:4] == ["10.0.0.0", "10.0.0.1", "10.0.0.20", "10.0.0.100"]
    assert names[4:] == ["::1", "2001:db8::9", "2001:db8::10", "2001:db8::1:0", "2001:db8:1::", "fd00::"]


def test_what_tenants_wrote_is_text(browser, page):
    nasty = {"10.0.9.9": eip(NASTY, [NASTY], NASTY, NASTY, NASTY, NASTY)}
    told = made_up(1, failovers=[failover(2, **{"from": NASTY, "to": NASTY})], problems=[NASTY], **nasty)
    told |= {"by": NASTY, "refused": [{"service": NASTY, "reason": NASTY, "message": NASTY}]}
    looking(browser, page, told | {"nodes": [{"node": NASTY, "eips": 1}]})
    assert browser.run("return document.querySelectorAll('main img, main script').length") == 0
    assert browser.text("#problems li").startswith("<img src=x")
    assert browser.run("return document.title") == f"EIP speaker · {NASTY}".strip()


def test_one_gets_about_with_the_keyboard(browser, page):
    looking(browser, page, made_up(30))
    stops = []
    for _ in range(5):
        browser.keys("Tab")
        stops.append(browser.run("return document.activeElement.id || document.activeElement.textContent"))
    assert stops == [*NODES, "filter", "eips"]
    browser.run("document.querySelector('#nodes button').focus()")
    browser.keys("Enter")
    assert browser.text("#found") == "10 of 30 EIPs"
    browser.run("document.querySelectorAll('#nodes button')[1].focus()")
    page.show(made_up(30, moved="node-c"))
    browser.until("document.querySelector('#nodes').textContent.includes('11 EIPs')")
    assert browser.run("return document.activeElement.textContent") == "node-b", "news take nobody's focus"
    browser.run("document.getElementById('filter').focus()")
    browser.keys(*"+ no such")
    assert browser.text("#found") == "0 of 30 EIPs"


RUNS = [["excluded", 1], ["used", 3], ["resting", 1], ["free", 250], ["excluded", 1]]


def pools(runs=RUNS, used=3):
    maps = {"192.0.2.0": runs, "192.0.7.32": [["outside", 8], ["free", 24]]}
    lan = {"pool": "lan", "family": "IPv4", "size": 1000, "used": used, "resting": 100, "maps": maps, "left_out": 2}
    return [lan, {"pool": "six", "family": "IPv6", "size": 2**64, "used": 9, "resting": 0}]


@pytest.mark.parametrize("look", LOOKS)
def test_a_pool_is_a_bar_and_opened_a_map_of_its_addresses(browser, page, look):
    browser.look(**LOOKS[look])
    looking(browser, page, made_up() | {"pools": pools()})
    said = ["lan, IPv4", "3 (+ 100 resting) of 1000", "six, IPv6", "9 of about 2^64"]
    assert [each.strip() for each in browser.text("#pools").splitlines()] == said
    bars = "return [...document.querySelectorAll('#pools .bar')].map(x => [...x.children].map(i => i.style.width))"
    assert browser.run(bars)[0] == ["0.3%", "10%"]
    assert browser.run("return document.querySelectorAll('#pools .map').length") == 0, "cells of what nobody looks at"
    assert browser.run("return document.querySelectorAll('#pools summary').length") == 1
    browser.run("document.querySelector('#pools summary').focus()")
    browser.keys("Enter")
    browser.until("document.querySelectorAll('#pools .map').length === 2")
    said = browser.run(
        "return [...document.querySelectorAll('#pools p')].map(x => x.innerText.split('\\n').join(', '))"
    )
    assert said == [
        *("192.0.2.0\u2013192.0.2.255", "3 used, 1 resting, 2 excluded, 250 free"),
        *("192.0.7.32\u2013192.0.7.63", "24 free", "and 2 more /24s in use"),
    ]
    cells = "return [...document.querySelectorAll('#pools .map i')].map(x => [x.title, x.className])"
    found = browser.run(cells)
    assert (found[4], found[5], len(found)) == (["192.0.2.4", "resting"], ["192.0.2.5", "free"], 256 + 32)
    assert browser.accessibility() == []
    assert browser.run("return document.documentElement.scrollWidth") == LOOKS[look]["width"]
    browser.run("document.querySelectorAll('#pools .map i')[3].click()")
    assert browser.run("return document.getElementById('filter').value") == "192.0.2.3"


def test_a_pool_that_is_open_stays_open_and_keeps_the_focus_when_it_changes(browser, page):
    looking(browser, page, made_up() | {"pools": pools()})
    browser.run("const it = document.querySelector('#pools summary'); it.click(); it.focus()")
    browser.until("document.querySelector('#pools .map')")
    browser.run("window.before = document.querySelector('#pools .map')")
    page.show(made_up(moved="node-c") | {"pools": pools()})
    browser.until(FIRST_HOLDER + " === 'node-c'")
    assert browser.run("return window.before.isConnected"), "it did not change"
    page.show(made_up() | {"pools": pools([["used", 256]], 256)})
    browser.until("document.querySelector('#pools .key')?.innerText === '256 used'")
    assert browser.run("return document.activeElement.closest('details').open")


def test_on_paper_it_is_light_and_its_bars_and_maps_are_there(browser, page):
    browser.look(**LOOKS["dark"])
    looking(browser, page, made_up() | {"pools": pools()})
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.devtools("Emulation.setEmulatedMedia", media="print", features=dark)
    styled = "const it = getComputedStyle(document.body); return [it.backgroundColor, it.printColorAdjust]"
    paper = browser.run(styled)
    browser.devtools("Emulation.setEmulatedMedia", media="", features=dark)
    assert paper == ["rgb(251, 250, 248)", "exact"]
    assert browser.run(styled) == ["rgb(21, 24, 27)", "economy"]


def to_the_end(browser):
    browser.run("document.getElementById('eips').scrollTop = 1e9")


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("count", [0, MANY])
def test_no_number_of_eips_makes_it_long_or_hard_to_read_for_anybody(browser, page, count, look):
    browser.look(**LOOKS[look])
    looking(browser, page, made_up(count))
    assert browser.accessibility() == []
    assert browser.run("return document.querySelectorAll('#rows > *').length") < 100
    assert browser.run("return document.documentElement.scrollHeight") < 3000
    if count:
        to_the_end(browser)
        browser.until("document.getElementById('rows').lastElementChild.ariaRowIndex === '5001'")
        box, last = browser.run(
            "return [document.getElementById('eips'), document.getElementById('rows').lastElementChild]"
            ".map(x => x.getBoundingClientRect().bottom)"
        )
        assert abs(box - last) < 1


@pytest.mark.parametrize("look", LOOKS)
def test_an_eip_tells_its_way_in_full_on_a_click_and_closing_it_leads_back(browser, page, look):
    browser.look(**LOOKS[look])
    looking(browser, page, with_trouble())
    find(browser, "2001:db8::10")
    browser.run("document.querySelector('#rows button').focus()")
    browser.keys("Enter")
    assert [*filter(None, browser.text("#path").splitlines())] == [
        *("2001:db8::10", "client → 2001:db8::10 → node-c → default/v6"),
        *("pool", "six", "assignment", "default/v6", "candidates", UNSEEN),
        *("holder", f"node-c, since {browser.text('#rows time')}", "link", UNSEEN),
        *("wire", "02:00:00:00:00:99 on eth0 uses it too", "way in", UNSEEN),
        *("kernel", UNSEEN, "endpoints", UNSEEN, "way back", UNSEEN),
        *("Each step, and the one that is broken: speaker explain 2001:db8::10", "Close"),
    ]
    assert browser.accessibility() == []
    browser.keys("Enter")
    assert not browser.run("return document.getElementById('path').open")
    assert browser.run("return document.activeElement.textContent") == "2001:db8::10"


PREFERRED = {"preferred": "node-b", "weights": {"node-a": 20, "node-b": 80}}


@pytest.mark.parametrize(
    ("told", "said", "bad"),
    [
        ({}, {"candidates": UNSEEN, "holder": "node-a", "link": UNSEEN, "wire": UNSEEN, "endpoints": UNSEEN}, []),
        (PREFERRED, {"candidates": "node-b is preferred (weight 80), but node-a holds it (weight 20)"}, []),
        (
            {"preferred": "node-a", "weights": {"node-a": 80}},
            {"candidates": "node-a is preferred (weight 80), and holds it"},
            [],
        ),
        (
            {"link": "eth0", "answering": 1, "ready_endpoints": 3},
            {"link": "eth0", "wire": "1 host answers", "endpoints": "3 ready"},
            [],
        ),
        (
            {"answering": 2, "ready_endpoints": 0},
            {"wire": "2 hosts answer", "endpoints": "0 ready"},
            ["wire", "endpoints"],
        ),
        ({"answering": 0}, {"wire": "0 hosts answer"}, ["wire"]),
        ({"holder": None, "message": "eth0: it is down"}, {"holder": "nobody", "link": "eth0: it is down"}, ["holder"]),
        (
            {"holder": None, "link": "eth0", "message": "waits for another"},
            {"holder": "nobody: waits for another", "link": "eth0"},
            ["holder"],
        ),
    ],
)
def test_the_steps_of_explain_say_what_is_known_and_what_is_not_is_not_called_well(browser, page, told, said, bad):
    one = {"pool": "lan", "services": ["default/web"], "holder": "node-a"} | told
    looking(browser, page, made_up(0, **{"192.0.2.1": eip(**one)}))
    browser.run("document.querySelector('#rows button').click()")
    steps = browser.run(
        "return [...document.querySelectorAll('#path dt')]"
        ".map(x => [x.innerText, x.nextSibling.innerText, x.nextSibling.className])"
    )
    known = {name: words for name, words, _ in steps}
    assert known.items() >= said.items()
    assert [name for name, _, kind in steps if kind == "bad"] == bad
    assert {known[name] for name in ("way in", "kernel", "way back")} == {UNSEEN}
    assert "ok" not in browser.text("#path").lower().split()
    way = browser.text("#path p").split(" → ")[4:]
    assert way == {3: ["3 ready endpoints"], 0: ["0 ready endpoints"], None: []}[told.get("ready_endpoints")]


def test_an_eip_that_is_not_with_the_node_it_prefers_says_so_in_its_row_and_is_found_by_that(browser, page):
    prefers = {
        name: eip("lan", [], "node-a", preferred=name[-6:], weights={})
        for name in ("10.0.9.1 node-b", "10.0.9.2 node-a")
    }
    looking(browser, page, made_up(3, **{name[:8]: one for name, one in prefers.items()}))
    find(browser, "prefers")
    assert browser.text("#found") == "1 of 5 EIPs"
    assert browser.run("return " + FIRST_HOLDER) == "node-a prefers node-b"


def test_the_way_that_one_reads_follows_and_the_focus_stays(browser, page):
    looking(browser, page, made_up(9))
    browser.run("document.querySelector('#rows button').click()")
    page.show(made_up(9, moved="node-c"))
    browser.until("document.getElementById('path').innerText.includes('→ node-c →')")
    assert browser.run("return document.activeElement.textContent") == "Close"
    page.show(made_up(0))
    browser.until("!document.getElementById('path').open")


def test_five_thousand_are_found_and_followed_and_printed(browser, page):
    looking(browser, page, made_up(MANY))
    find(browser, "10.0.7.77")
    assert browser.text("#found") == f"1 of {MANY:,} EIPs"
    find(browser, "")
    page.show(made_up(MANY, moved="node-c", failovers=[failover(MANY)]))
    browser.until(FIRST_HOLDER + " === 'node-c'")
    assert browser.text("#failovers .who") == f"{MANY:,} EIPs: node-b in place of node-a"
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("return document.querySelectorAll('#rows > *').length") == MANY
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.run("return document.querySelectorAll('#rows > *').length") < 100


def test_a_row_that_stays_in_view_is_the_same_one(browser, page):
    looking(browser, page, made_up(MANY))
    browser.run("window.before = document.querySelectorAll('#rows > *')[12]")
    browser.run("document.getElementById('eips').scrollTop = 400")
    browser.until("document.querySelector('#rows > *').ariaRowIndex !== '2'")
    assert browser.run("return window.before.isConnected")


def test_a_speaker_that_is_gone_is_said_to_be_and_one_that_is_back_is_followed_again(browser, page):
    looking(browser, page, made_up(3))
    page.close()
    browser.until("document.getElementById('link').className === 'lost'")
    assert browser.text("#link") == "no connection: this is what was known last"
    assert browser.run(f"return {LISTED}") == 3
    page.open()
    page.show(made_up(5))
    browser.until(LIVE + f" && {LISTED} === 5")
    for complaint in browser.console():
        assert "Failed to load resource: net::ERR_" in complaint
