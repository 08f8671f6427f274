"""The image that pods run from."""

import os

import pytest
from cluster_nodes import store
from cluster_parts import (
    DEV,
    HERE,
    SPEAKER,
    architecture_of,
    build_speaker,
    health_check,
    images,
    layers,
    remove_image,
    says,
)
from emulated import emulated
from real_cluster import missing

pytestmark = [pytest.mark.cluster, pytest.mark.long(part="rest")]
MOST = 70e6
"""Bytes beside the base, unpacked."""
OTHER = {"amd64": "arm64", "arm64": "amd64"}[HERE]


@pytest.fixture(scope="module")
def built():
    if why := missing():
        pytest.skip(why)
    store()


@pytest.fixture
def another():
    name = f"{SPEAKER}:again"
    yield name
    remove_image(name)


def test_an_image_that_is_built_again_from_nothing_is_the_same(built, another):
    assert build_speaker(another, "--no-cache") == build_speaker(DEV)


def test_in_dockers_format_it_says_how_to_ask_for_its_health(built, another):
    build_speaker(another, "--format", "docker")
    kind, program, *_ = health_check(another)
    assert (kind, program) == ("CMD", "python")
    assert health_check(DEV) == [], "OCI's format has no place for it"


@pytest.mark.skipif("EMULATE" not in os.environ, reason=f"EMULATE=1 builds for {OTHER} too, by QEMU (docs/cluster.md)")
def test_the_same_file_makes_one_for_another_processor_that_runs(built, another):
    with emulated(OTHER):
        build_speaker(another, architecture=OTHER)
        assert architecture_of(another) == OTHER
        assert says(another, "speaker", "--version") == says(DEV, "speaker", "--version")


def test_it_is_as_small_as_is_said(built, tell):
    (_, archive) = images()
    base, *ours = layers(DEV, archive)
    tell(f"the image: {sum(ours) / 1e6:.0f} MB beside {base / 1e6:.0f} MB of the base")
    assert sum(ours) <= MOST
