"""Rules as ``iptables-save`` prints them, made into what nft would list. Pure.

nft lists of an extension of iptables its name alone; this has what it compares. What is not known here stays an
extension, which nobody understands.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from speaker.diagnosis.facts import Chain

OLD = "legacy "
"""Before the name of a table of iptables as it was before nftables, which has tables of the same names."""
_CHAIN = re.compile(r":(\S+) (\S+) ")
_HOOKS = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")
_VERDICTS = {"ACCEPT": "accept", "DROP": "drop", "REJECT": "reject", "RETURN": "return"}
_WITHOUT_MEANING = frozenset({"--comment", "--reject-with", "--log-prefix", "--log-level", "-m"})
"""Each with one value."""


def chains(family: str, table: str, text: str) -> Iterator[Chain]:
    """``family``: ip or ip6. Chains of the kernel have a hook."""
    rules: dict[str, list[str]] = {}
    policies: dict[str, str] = {}
    for line in text.splitlines():
        if (chain := _CHAIN.match(line)) is not None:
            policies[chain[1]] = chain[2]
            rules.setdefault(chain[1], [])
        elif line.startswith("-A ") and not line.startswith("-A EIP-SPEAKER"):  # ours are no obstacle
            rules.setdefault(line.split()[1], []).append(line)
    for name, lines in rules.items():
        hook = name.lower() if name in _HOOKS else ""
        policy = "drop" if policies.get(name) == "DROP" else "accept"
        made = tuple(_rule(family, line, policies) for line in lines)
        yield Chain(family, table, name, hook, policy, rules=made, texts=tuple(lines))


def _rule(family: str, line: str, chains: Mapping[str, str]) -> list[Any]:
    try:
        words = shlex.split(line)[2:]
    except ValueError:
        return [{"xt": {"type": "target", "name": line}}]
    found, verdict, protocol, negated = [], [], "", False
    for option, value in _options(words):
        if option == "-p":
            protocol = value
        if option in ("-j", "-g"):
            verdict = [_target(value, "jump" if option == "-j" else "goto", chains)]
            break  # what follows are a target's own options
        if option != "!" and option not in _WITHOUT_MEANING:
            found.append(_match(family, option, value, protocol, negated))
        negated = option == "!"
    return [*found, *verdict]


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    """Each with its values: none, one, or several."""
    at = 0
    while at < len(words):
        end = at + 1 + (words[at] in _WITHOUT_MEANING)  # a comment may begin as it likes
        while end < len(words) and words[end][:1] not in ("-", "!"):
            end += 1
        yield words[at], " ".join(words[at + 1 : end])
        at = end


def _target(name: str, way: str, chains: Mapping[str, str]) -> dict[str, Any]:
    if name in _VERDICTS:
        return {_VERDICTS[name]: None}
    return {way: {"target": name}} if name in chains else {"xt": {"type": "target", "name": name}}


def _match(family: str, option: str, value: str, protocol: str, negated: bool) -> dict[str, Any]:
    """``protocol``: that ``-p`` named before."""
    left: dict[str, Any] | None = None
    right: Any = value
    match option:
        case "-s" | "-d" if (length := value.partition("/")[2]).isdigit() or not length:
            address = value.partition("/")[0]
            left = {"payload": {"protocol": family, "field": "saddr" if option == "-s" else "daddr"}}
            right = {"prefix": {"addr": address, "len": int(length)}} if length.isdigit() else address
        case "-i" | "-o":
            left = {"meta": {"key": "iifname" if option == "-i" else "oifname"}}
            right = re.sub(r"\+$", "*", value)
        case "-p":
            left, right = {"meta": {"key": "l4proto"}}, int(value) if value.isdigit() else value
        case "--dport" | "--sport" | "--dports" | "--sports" | "--destination-ports" | "--source-ports" if protocol:
            left = {"payload": {"protocol": protocol, "field": f"{option[2]}port"}}
            right = {"set": [_port(each) for each in value.split(",")]}
        case "--ctstate" | "--state" if not set(value.split(",")) & {"DNAT", "SNAT"}:
            left, right = {"ct": {"key": "state"}}, {"set": [each.lower() for each in value.split(",")]}
        case "--ctstate" if value in ("DNAT", "SNAT") and not negated:
            return {"match": {"op": "in", "left": {"ct": {"key": "status"}}, "right": value.lower()}}
    if left is None:
        return _unknown(option)
    return {"match": {"op": "!=" if negated else "==", "left": left, "right": right}}


def _port(written: str) -> Any:
    first, colon, last = written.partition(":")
    if not colon:
        return int(first) if first.isdigit() else first
    return {"range": [int(first or 0), int(last or 65535)]}


def _unknown(what: str) -> dict[str, Any]:
    return {"xt": {"type": "match", "name": what}}
