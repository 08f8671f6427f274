"""``compiled.py DIR [OPTION…]``: the simulation of ownership with OPTIONs, compiled to C (mypyc) in a copy below DIR.

It plays what ``python -m simulation`` plays, step for step, in less than half the time. Building
takes a minute and a C compiler with Python's headers, and is done once for each DIR.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

# Without events: mypyc does not know its Exception.
MACHINE = (
    *("balance", "hello", "parameters", "score", "hellos/keys"),
    *(f"hellos/{name}" for name in ("frames", "layout", "packing", "reading")),
    *(f"machine/{name}" for name in ("agenda", "claims", "hearing", "holding", "known", "loss", "machine", "moving")),
    *(f"machine/{name}" for name in ("naming", "peers", "records", "rules", "segment", "silence")),
    "machine/unanswered",
)
SIMULATION = (
    *("apiserver", "clock", "cluster", "faults", "host", "link_faults", "network", "node_faults", "promises"),
    *("schedule", "service", "shrink", "stations", "stranger", "wire", "world"),
)
_SETUP = """
from setuptools import setup
from mypyc.build import mypycify
setup(name="compiled", packages=[], ext_modules=mypycify({modules}, opt_level="1", debug_level="0", multi_file=True))
"""


def main(into: Path, options: list[str]) -> None:
    if not (into / "built").exists():
        build(into)
    sys.exit(subprocess.run([sys.executable, "-m", "simulation", *options], cwd=into).returncode)


def build(into: Path) -> None:
    shutil.rmtree(into, ignore_errors=True)
    root = Path(__file__).parent.parent
    shutil.copytree(root / "speaker", into / "speaker")
    shutil.copytree(root / "tests" / "simulation", into / "simulation")
    modules = [*(f"speaker/ownership/{name}.py" for name in MACHINE), *(f"simulation/{name}.py" for name in SIMULATION)]
    (into / "setup.py").write_text(_SETUP.format(modules=["--strict", *modules]))
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", f"-j{os.cpu_count() or 1}"]
    subprocess.run(command, cwd=into, env={**os.environ, "CFLAGS": "-w"}, check=True)
    (into / "built").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
