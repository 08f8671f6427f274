"""Clients nobody here wrote, in a lab that was left up: curl fetches from EIPs, tcpdump sees who answered."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.netns

NODE_MAC = "02:00:00:01:00:11"


@pytest.fixture(autouse=True)
def tools():
    for tool in ("arping", "curl", "ip", "nsenter", "tcpdump"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    if Path("/proc/self/setgroups").read_text().strip() == "deny":
        pytest.skip("tcpdump cannot drop its privileges in a user namespace without setgroups()")


@pytest.mark.parametrize(
    ("eip", "question", "said"),
    [
        ("192.0.2.217", "arp", r"Reply 192\.0\.2\.217 is-at (\S+?),"),
        ("2001:db8:0:1::217", "icmp6", r"tgt is 2001:db8:0:1::217.*?address option.*?: (\S+)"),
    ],
)
def test_curl_reaches_the_eip_and_only_the_nodes_mac_answered_for_it(kept_lab, eip, question, said):
    lab = kept_lab()
    lab.run("client", "ip neigh flush all")
    with subprocess.Popen(
        [*lab.enter("client"), "tcpdump", "-i", "eth0", "-n", "-l", "-v", "--immediate-mode", question],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as tcpdump:
        assert tcpdump.stderr is not None
        assert any("listening on" in line for line in tcpdump.stderr)
        host = f"[{eip}]" if ":" in eip else eip
        answers = {lab.run("client", f"curl --silent --show-error --max-time 60 http://{host}/") for _ in range(30)}
        tcpdump.terminate()
        captured = tcpdump.communicate(timeout=180)[0]
    assert {answer.split()[0] for answer in answers} == {"pod1", "pod2", "host1"}
    macs = set(re.findall(said, captured, re.DOTALL))
    assert macs == {NODE_MAC}, captured


def test_arping_finds_the_lans_eips_on_the_lan_and_not_those_of_the_management_network(kept_lab):
    lab = kept_lab()

    def arping(eip: str) -> str:
        line = [*lab.enter("client"), "arping", "-c", "2", "-w", "2", "-I", "eth0", eip]
        return subprocess.run(line, capture_output=True, text=True, check=False).stdout.lower()

    assert any(NODE_MAC in arping("192.0.2.217") for _ in range(15))
    assert "02:00:00:" not in arping("198.51.100.200")


def test_what_a_kept_lab_says_to_type_next_can_be_pasted_and_so_can_its_end(kept_lab):
    lab = kept_lab()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    pasted = re.findall(r"^Next: (.*)$", lab.story, re.MULTILINE)
    assert len(pasted) == 4
    for line in pasted:
        line += " --seconds 0.5" * ("speaker capture" in line)
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=os.environ | {"PATH": path})
        assert done.returncode == 0, f"{line}: {done.stderr}"
    (end,) = re.findall(r"^Ctrl-C takes it all down, and so does: (kill \d+)$", lab.story, re.MULTILINE)
    subprocess.run(end.split(), check=True)
    assert lab.process.wait(60) == 0
