"""A directory that asks for nothing any more: when that counts as meant."""

import subprocess
import sys

import pytest

from speaker.model import Pool, Protocol, Service, ServiceKey, ServicePort, World
from speaker.standalone.manifests import Patience, mount

DIRECTORY = "/etc/speaker/site"
ETC, VOLUME = 21, 99
NOTHING = World()


def world(*names):
    keys = [ServiceKey("default", name) for name in names]
    services = {key: Service(key, (ServicePort(Protocol.TCP, 80),)) for key in keys}
    return World(pools={"lan": Pool("lan", ())}, services=services)


ONLY_A_POOL = world()
ONLY_A_NAMESPACE = World(namespaces={"shop": {}})
WEB, BOTH = world("web"), world("web", "dns")
MANY, FEWER = world(*"abcdefghij"), world(*"abcdefg")


@pytest.mark.parametrize(
    ("story", "remembered", "readings"),
    [
        ("what is there at the start counts", True, [(0, WEB, ETC, True)]),
        ("an empty directory at the very first start counts", False, [(0, NOTHING, ETC, True)]),
        (
            "an emptied directory counts when it has stayed empty",
            False,
            [(0, WEB, ETC, True), (5, NOTHING, ETC, False), (34.9, NOTHING, ETC, False), (35, NOTHING, ETC, True)],
        ),
        (
            "and what comes after that counts at once, emptiness too",
            False,
            [
                *((0, WEB, ETC, True), (5, NOTHING, ETC, False), (35, NOTHING, ETC, True)),
                *((36, NOTHING, VOLUME, True), (37, WEB, VOLUME, True), (38, NOTHING, VOLUME, False)),
            ],
        ),
        (
            "what comes back begins anew",
            False,
            [
                *((0, WEB, ETC, True), (5, NOTHING, ETC, False), (20, WEB, ETC, True)),
                *((21, NOTHING, ETC, False), (50, NOTHING, ETC, False), (51, NOTHING, ETC, True)),
            ],
        ),
        (
            "a volume that is not mounted any more deletes nothing, ever",
            False,
            [(0, WEB, VOLUME, True), (5, NOTHING, ETC, False), (1e6, NOTHING, ETC, False), (2e6, BOTH, VOLUME, True)],
        ),
        (
            "one that is not mounted yet neither, where Services are remembered",
            True,
            [(0, NOTHING, ETC, False), (1e6, NOTHING, ETC, False), (2e6, WEB, VOLUME, True)],
        ),
        (
            "whoever writes that nothing is wanted is believed",
            False,
            [
                *((0, WEB, VOLUME, True), (5, ONLY_A_POOL, VOLUME, True), (6, WEB, VOLUME, True)),
                *((7, NOTHING, ETC, False), (8, ONLY_A_NAMESPACE, VOLUME, True)),
            ],
        ),
        (
            "a Service that goes while others stay is gone at once",
            False,
            [(0, BOTH, ETC, True), (5, WEB, ETC, True)],
        ),
        (
            "many that go while others stay count when they have stayed away",
            False,
            [(0, MANY, ETC, True), (5, FEWER, ETC, False), (34.9, FEWER, ETC, False), (35, FEWER, ETC, True)],
        ),
        (
            "and so do all of several, though a pool stays",
            False,
            [(0, BOTH, ETC, True), (5, ONLY_A_POOL, ETC, False), (35, ONLY_A_POOL, ETC, True)],
        ),
        (
            "many that come back in between begin anew",
            False,
            [(0, MANY, ETC, True), (5, FEWER, ETC, False), (20, MANY, ETC, True), (40, FEWER, ETC, False)],
        ),
        (
            "a quarter of many that goes is gone at once",
            False,
            [(0, world(*map(str, range(12))), ETC, True), (5, world(*map(str, range(9))), ETC, True)],
        ),
        (
            "another mount that has all of it, and more, counts at once",
            False,
            [(0, WEB, ETC, True), (5, BOTH, VOLUME, True)],
        ),
        (
            "another mount that lacks some of it counts after a while",
            False,
            [(0, BOTH, VOLUME, True), (5, WEB, ETC, False), (34, WEB, ETC, False), (35, WEB, ETC, True)],
        ),
    ],
)
def test_what_is_believed_and_when(story, remembered, readings):
    patience = Patience(DIRECTORY, 30.0, remembered)
    found = [(now, patience.doubt(asked, place, now) is None) for now, asked, place, _ in readings]
    assert found == [(now, believed) for now, _, _, believed in readings], story


def test_what_could_not_be_read_in_between_did_not_stand():
    patience = Patience(DIRECTORY, 30.0, remembered=False)
    patience.doubt(WEB, ETC, 0.0)
    patience.doubt(NOTHING, ETC, 1.0)
    patience.forget()
    assert patience.doubt(NOTHING, ETC, 40.0) is not None


@pytest.mark.parametrize(
    ("first", "then", "place", "said", "until"),
    [
        (WEB, NOTHING, ETC, "has no manifests now: was it emptied, or is it lost? It takes effect if", 40.0),
        (WEB, NOTHING, VOLUME, "has no manifests, and is on another mount than before: perhaps a volume is not", None),
        (BOTH, WEB, VOLUME, "is on another mount than before, and lacks default/dns. It takes effect if", 40.0),
        (MANY, FEWER, ETC, "lacks 3 of 10 Services: default/h, default/i, default/j. It takes effect if", 40.0),
        (
            world(*"abcde"),
            WEB,
            VOLUME,
            "is on another mount than before, and lacks default/a, default/b, default/c and 2 more Services. It",
            40.0,
        ),
    ],
)
def test_a_doubt_says_what_is_wrong_and_when_it_ends(first, then, place, said, until):
    patience = Patience(DIRECTORY, 30.0, remembered=False)
    patience.doubt(first, ETC, 0.0)
    doubt = patience.doubt(then, place, 10.0)
    assert doubt.sentence.startswith(f"{DIRECTORY}: {said}")
    assert doubt.until == (float("inf") if until is None else until)


def test_no_patience_at_all_believes_everything_but_an_empty_mount_point():
    patience = Patience(DIRECTORY, 0.0, remembered=False)
    patience.doubt(WEB, ETC, 0.0)
    assert patience.doubt(NOTHING, VOLUME, 0.0) is not None
    assert patience.doubt(NOTHING, ETC, 0.0) is None


MOUNTS = """
import pathlib, subprocess, sys
from speaker.standalone.manifests import mount

site, other = map(pathlib.Path, sys.argv[1:])
before = mount(site)
subprocess.run(["mount", "--bind", other, site], check=True)
assert mount(site) != before, "though it is the same file system"
subprocess.run(["umount", site], check=True)
assert mount(site) == before
print("seen")
"""


def test_a_mount_is_told_from_what_lies_under_it(tmp_path):
    site, other = tmp_path / "site", tmp_path / "other"
    site.mkdir()
    other.mkdir()
    command = ["unshare", "-Urm", sys.executable, "-c", MOUNTS, str(site), str(other)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare failed" in done.stderr or "permission denied" in done.stderr:
        pytest.skip(f"needs a mount namespace: {done.stderr.strip()}")
    assert done.stdout == "seen\n", done.stderr


def test_no_directory_is_on_no_mount(tmp_path):
    assert mount(tmp_path / "nowhere") == 0
