"""What became of a connection that failed: the packets that open connections and say who holds an EIP, as they were
seen in every network namespace; what the API said of endpoints meanwhile, and what kube-proxy made of it.

A SYN keeps its sequence number where its addresses and ports are translated, and a datagram its length, of which no
two in a row have the same: by these they are found again on the nodes and on the links of pods.
"""

import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from real_cluster import RealCluster

OPENING = (
    "arp or icmp or icmp6 or udp port 53 or udp port 8080 or (tcp[tcpflags] & (tcp-syn|tcp-rst) != 0)"
    " or (ip6[6] == 6 and ip6[53] & 6 != 0)"  # SYN, RST: libpcap reads TCP's flags in IPv4 only
)
MEGABYTES, FILES = 16, 2
"""A ring: minutes of what the clients of one place do."""
BEFORE, AFTER = 0.5, 4.0
"""Seconds around the time at which a connection was begun."""
SAID_BEFORE = 10.0
"""The same, of what the API and kube-proxy said."""
MOST = 60
"""Lines of packets that one connection's story has."""
Line = tuple[float, str, str]
"""Time of day, place, what was seen or said."""


class Seen:
    """Place by place, in a directory."""

    def __init__(self, cluster: RealCluster, directory: Path) -> None:
        self._cluster, self._directory = cluster, directory

    def story(self, port: int, address: str, begun: float) -> str:
        """Of the client's connection from its ``port`` to an EIP, begun at a time of day; in the order of time."""
        logs = [line for file in self._directory.glob("*.log") for line in _said(file)]
        said = [line for line in logs if begun - SAID_BEFORE <= line[0] <= begun + AFTER]
        lines = sorted([*_connection(self._around(begun), port, address)][:MOST] + said)
        told = [f"  {at - begun:+10.6f} {place:6} {text}" for at, place, text in lines]
        return "\n".join((*told, *self._tracked(port, address)))

    def forgotten(self, port: int, address: str, begun: float) -> bool:
        """As the function of this name has it."""
        return forgotten(self._around(begun), port, address)

    def slipped(self, port: int, address: str, begun: float) -> bool:
        """As the function of this name has it."""
        return slipped(self._around(begun), port, address)

    def _around(self, begun: float) -> list[Line]:
        packets = (line for file in self._directory.glob("*.pcap*") for line in _packets(file))
        return sorted(line for line in packets if begun - BEFORE <= line[0] <= begun + AFTER)

    def _tracked(self, port: int, address: str) -> Iterator[str]:
        """What nodes remember of the connection, now."""
        family = "ipv6" if ":" in address else "ipv4"
        words = ("conntrack", "-L", "-f", family, "-p", "tcp", "--orig-port-src", str(port), "--orig-dst", address)
        for node in self._cluster.nodes:
            for line in self._cluster.world.run(*words, place=node, check=False).splitlines():
                yield f"             {node:6} tracks {' '.join(line.split())}"


def _connection(packets: Sequence[Line], port: int, address: str) -> Iterator[Line]:
    """Its packets, and those that say who holds its EIP."""
    eip = re.escape(address)
    sent = re.compile(rf"\.{port} > {eip}\.\d+: Flags \[S\], seq (\d+)")
    numbers = {int(found[1]) for _, _, text in packets if (found := sent.search(text))}
    marks = [
        rf"\.{port} > {eip}\.|{eip}\.\d+ > \S+\.{port}:",
        rf"(who-has|Reply|tgt is|has) {eip}\b",
        *(rf"seq {number}\b|ack {number + 1}\b" for number in numbers),
        *(rf"\.{each} > |\.{each}: UDP|udp port {each}\b" for each in _sent_on(packets, port, address)),
    ]
    told = re.compile("|".join(marks))
    yield from (line for line in packets if told.search(line[2]))


def _sent_on(packets: Sequence[Line], port: int, address: str) -> set[str]:
    """The ports from which nodes sent a datagram on to a pod."""
    sent = re.compile(rf"\.{port} > {re.escape(address)}\.53: UDP, length (\d+)")
    lengths = {found[1] for _, _, text in packets if (found := sent.search(text))}
    kind = "IP6" if ":" in address else "IP"  # datagrams of one round are as long in both
    on = re.compile(rf" {kind} \S+\.(\d+) > \S+\.8080: UDP, length ({'|'.join(lengths)})$")
    return {found[1] for _, _, text in packets if lengths and (found := on.search(text))}


def forgotten(packets: Sequence[Line], port: int, address: str) -> bool:
    """Whether a pod answered the client's datagram, and the node that had sent it on knew of it no more. Kube-proxy
    makes nodes forget what goes to an endpoint that leaves; nobody else may."""
    ports = "|".join(_sent_on(packets, port, address))
    refused = re.compile(rf" Out .*( unreachable port, .*udp port ({ports})\b|udp port ({ports}) unreachable)")
    return bool(ports) and any(refused.search(text) for _, _, text in packets)


_TAKEN = re.compile(r" In  ?IP6? (\S+)\.(\d+) > (\S+)\.(\d+): Flags \[S\], seq (\d+)")
_SENT_ON = re.compile(r" Out IP6? \S+ > \S+\.8080: Flags \[S\], seq (\d+)")


def slipped(packets: Sequence[Line], port: int, address: str) -> bool:
    """Whether a node that took the client's SYN sent it on to no pod, and did so with those before and after it to the
    same port of the EIP: kube-proxy's rules stood there all the time, and the kernel passed them by for one packet."""
    for place in {place for _, place, _ in packets if place != "client"}:
        here = [text for _, at, text in packets if at == place]
        sent_on = {found[1] for text in here if (found := _SENT_ON.search(text))}
        taken = [found for text in here if (found := _TAKEN.search(text)) and found[3] == address]
        for eip_port in {found[4] for found in taken if found[2] == str(port)}:
            # Client's port and sequence number of each SYN, in the order in which they came.
            syns = list(dict.fromkeys((found[2], found[5]) for found in taken if found[4] == eip_port))
            own = [number for number, (sender, _) in enumerate(syns) if sender == str(port)]
            beside = [syns[number][1] for number in (own[0] - 1, own[0] + 1) if 0 <= number < len(syns)]
            if len(own) == 1 and syns[own[0]][1] not in sent_on and len(beside) == 2 and sent_on.issuperset(beside):
                return True
    return False


def _packets(file: Path) -> Iterator[Line]:
    for filter_, style in (("not udp", "-S"), ("udp", "-q")):  # or it reads datagrams to port 53 as questions
        read = ("tcpdump", "-r", file, "-n", "-tt", style, filter_)
        said = subprocess.run(read, capture_output=True, text=True, errors="replace", check=False).stdout
        yield from (_line(file, each) for each in said.splitlines())


def _said(file: Path) -> Iterator[Line]:
    yield from (_line(file, each) for each in file.read_text().splitlines())


def _line(file: Path, written: str) -> Line:
    at, _, text = written.partition(" ")
    return float(at), file.name.partition(".")[0], text


@contextmanager
def seen(cluster: RealCluster) -> Iterator[Seen | None]:
    """For the length of the block; None where there is no tcpdump."""
    if shutil.which("tcpdump") is None:
        yield None
        return
    directory = cluster.directory / "seen"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    port = cluster.get("service", "local")["spec"]["healthCheckNodePort"]
    with ExitStack() as stack:
        stack.enter_context(_slices(cluster, directory / "api.log"))
        for node in cluster.nodes.values():
            four, six = node.addresses
            urls = (f"http://{four}:{port}", f"http://[{six}]:{port}")
            words = [*_inside(cluster, node.name), sys.executable, "-I", "-S", str(_WITNESS), *urls]
            stack.enter_context(_running(words, directory / f"{node.name}.log"))
        for place in ("client", *cluster.nodes):
            stack.enter_context(_packets_of(cluster, place, directory / f"{place}.pcap"))
        yield Seen(cluster, directory)


_WITNESS = Path(__file__).with_name("witness.py")


def _inside(cluster: RealCluster, place: str) -> list[str]:
    """One process, that ends with us."""
    return ["setpriv", "--pdeathsig", "TERM", "nsenter", f"--net={cluster.world.network(place)}", "--"]


@contextmanager
def _packets_of(cluster: RealCluster, place: str, file: Path) -> Iterator[None]:
    ring = ("-C", str(MEGABYTES), "-W", str(FILES), "-w", str(file))
    words = ["tcpdump", "-Z", "root", "-i", "any", "-n", "-s", "128", "-B", "8192", *ring, OPENING]
    process = subprocess.Popen(
        [*_inside(cluster, place), *words], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert any("listening on" in line for line in process.stderr)
        yield
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def _running(words: Sequence[str], file: Path) -> Iterator[None]:
    with file.open("w") as output:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


_SLICES = (
    "{{.metadata.name}}{{range .endpoints}} {{.nodeName}}={{range .addresses}}{{.}}{{end}}"
    ",{{if .conditions.ready}}ready{{else if .conditions.serving}}serving{{else}}neither{{end}}"
    '{{if .conditions.terminating}},terminating{{end}}{{end}}{{"\\n"}}'
)


@contextmanager
def _slices(cluster: RealCluster, file: Path) -> Iterator[None]:
    """The EndpointSlices of the Service ``local``, whenever one changes; asked again when the API was away."""
    watch = ("get", "endpointslices", "--selector=kubernetes.io/service-name=local", "--watch")
    words = [*_inside(cluster, "api"), *cluster.words_in_api("kubectl"), *watch, f"--output=go-template={_SLICES}"]
    running: list[subprocess.Popen[str]] = []
    ended = threading.Event()

    def write() -> None:
        with file.open("w") as output:
            while not ended.wait(0.2):
                with subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
                ) as process:
                    running[:] = [process]
                    output.writelines(f"{time.time():.6f} {line}" for line in process.stdout or ())

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        while writer.is_alive():
            for process in running:
                process.terminate()
            writer.join(0.1)
