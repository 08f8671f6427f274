"""``speaker capture``."""

import argparse
import sys
from pathlib import Path

from speaker.errors import SettingError
from speaker.settings import DEFAULT_ETHERTYPE, parse_ethertype
from speaker.tools.flags import Commands


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "capture",
        help="describe hellos, ARP and NDP on a link in words; needs the extra `tools`",
        description="Shows who asks, answers, announces and claims which EIP, and marks with ! what should not happen, "
        "such as a stranger who answers for a claimed EIP. Needs CAP_NET_RAW, unless it reads a file, and scapy, an "
        "extra because its licence is GPL-2.0: pip install 'scapy>=2.6,<3'.",
    )
    parser.add_argument("target", metavar="LINK|FILE", help="a link of this host, or a pcap or pcapng file")
    parser.add_argument("--seconds", metavar="S", type=float, help="how long to listen (default: until Ctrl-C)")
    parser.add_argument("--write", metavar="FILE", type=Path, help="save what was shown in a new pcap file")
    parser.add_argument(
        "--key", metavar="FILE", type=Path, help="verify hellos with this key; without one they are shown as unverified"
    )
    parser.add_argument(
        "--ethertype", metavar="NUMBER", help=f"EtherType of the hellos (default 0x{DEFAULT_ETHERTYPE:04X})"
    )
    parser.add_argument("--all", action="store_true", help="show every hello, not only changes")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(command=_capture)


def _capture(args: argparse.Namespace) -> int:
    from speaker.tools.capture.capture import CaptureSettings, capture

    if args.seconds is not None and not 0 < args.seconds < 86400:
        raise SettingError(f"--seconds {args.seconds:g}: must be seconds above 0 and below a day")
    ethertype = DEFAULT_ETHERTYPE if args.ethertype is None else parse_ethertype(args.ethertype)
    settings = CaptureSettings(args.target, args.seconds, args.write, args.key, ethertype, args.all, args.json)
    return capture(settings, sys.stdout)
