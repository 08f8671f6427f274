"""A kernel with IPVS and nftables wherever the tests run: User-Mode Linux, a Linux that is a program, built from the
newest source that Debian has for its stable release. (Debian's own build of it has no nftables, and since Linux 6.16
it can enter its processes by seccomp, in two thirds of the time.)

    cluster_kernel.py                         only builds it once, and fetches the nft that our image has
    cluster_kernel.py COMMAND [WORD...]       runs it on a machine of its own with that kernel (machine/boot)

It takes some 5 minutes to build on two idle cores, 170 MB from Debian and 2.5 GB of disk meanwhile, and is kept.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "releases"))

from cluster_parts import CACHE, alone, digest, kept, run, say
from debian_packages import NFT, Archive, release

MACHINE = Path(__file__).resolve().with_name("machine")
RELEASE, SOURCE = "trixie-backports", "linux-source"
"""SOURCE only depends on the newest."""


def kernel() -> Path:
    with alone():
        return kept(CACHE / "kernel", digest([MACHINE / "config"], platform.machine()), _build)


def _build(target: Path) -> None:
    if platform.machine() != "x86_64":
        raise RuntimeError(f"User-Mode Linux is for x86_64, and this is {platform.machine()}")
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        archive, root = Archive(Path(name, "apt"), RELEASE), Path(name, "root")
        source = archive.meant_by(SOURCE)
        say(f"building {source} as User-Mode Linux: some 5 minutes on two idle cores")
        archive.unpack((source,), root)
        (packed,) = (root / "usr/src").glob("linux-source-*.tar.xz")
        run("tar", "--extract", "--file", packed, "--strip-components=1", "--one-top-level=linux", directory=root)
        tree, fragment = root / "linux", MACHINE / "config"
        for command in (
            ("make", "defconfig"),
            ("scripts/kconfig/merge_config.sh", "-m", ".config", fragment),
            ("make", "olddefconfig"),
        ):
            run(*command, directory=tree, ARCH="um")
        check(fragment.read_text().splitlines(), (tree / ".config").read_text().splitlines())
        run("make", f"--jobs={os.cpu_count()}", "linux", directory=tree, ARCH="um", MAKEFLAGS="")
        run("strip", "--output-file", target, tree / "linux")


def check(wanted: list[str], got: list[str]) -> None:
    """What Linux does not know of under this name, or would not have without something else, it leaves out silently."""
    if lost := {line for line in wanted if line.endswith("=y")} - set(got):
        raise RuntimeError(f"{MACHINE / 'config'}: this Linux has not taken {', '.join(sorted(lost))}")


def main(words: list[str]) -> int:
    built = kernel()
    if not words:
        release("trixie", "nft", NFT).program("usr/sbin/nft")
        return 0
    return subprocess.run(
        [MACHINE / "boot", built, shutil.which(words[0]) or words[0], *words[1:]], check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
