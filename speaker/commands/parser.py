"""The command line in people's words: what cannot be is named with its flag, its value, its rule and what was meant."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from speaker.api.fields import did_you_mean
from speaker.errors import written
from speaker.tools.table import printable

_RULES: dict[object, str] = {float: "must be a number", int: "must be a whole number"}
_IN_WORDS = (
    (re.compile(r"^argument (\S+): not allowed with argument (\S+)$"), r"\1: not together with \2"),
    (re.compile(r"^argument (.*)$"), r"\1"),
    (re.compile(r"^the following arguments are required: (.*)$"), r"\1 is missing"),
    (re.compile(r"^(\S+): expected (?:one|at least one) argument$"), r"\1: needs a value"),
    (re.compile(r"^(\S+): ignored explicit argument '?(.*?)'?$"), r"\1=\2: takes no value"),
    (re.compile(r"^ambiguous option: (\S+) could match (.*)$"), r"\1: could be any of \2"),
)
"""argparse's messages, of every Python that we run on, and ours. Each is tried once, in turn."""


class Parser(argparse.ArgumentParser):
    """Ends the process with 2 and two lines on stderr: what is wrong, and the command that says what would be right."""

    def error(self, message: str) -> NoReturn:
        for pattern, words in _IN_WORDS:
            message = pattern.sub(words, message)
        _, _, command = self.prog.partition(" ")
        self.exit(2, f"{self.prog}: {message}\nNext: speaker help{' ' * bool(command)}{command}\n")

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """For words that nothing takes."""
        word = printable(unknown[0])
        if not word.startswith("-"):
            self.error(f"{written(unknown[0])}: is one word too many")
        flag, _, _ = word.partition("=")
        flags = [each for action in self._actions for each in action.option_strings if each.startswith("--")]
        self.error(f"{flag}: no such flag: {did_you_mean(flag, flags)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices, said = [str(choice) for choice in action.choices], str(value)
        hint = did_you_mean(said, choices)
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"{written(said)}: no such command: {hint}")
        meant = f": {hint}" if hint.startswith("did") else ""
        self._cannot_be(action, said, f"must be one of {', '.join(choices)}{meant}")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        if action.type is Path and not arg_string:  # of a variable that is not set: Path takes it for this directory
            self._cannot_be(action, arg_string, "must be a path: this directory is .")
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            self._cannot_be(action, arg_string, _RULES.get(action.type, error.message))

    def _cannot_be(self, action: argparse.Action, value: str, rule: str) -> NoReturn:
        self.error(f"{max(action.option_strings, key=len, default=action.metavar)} {written(value)}: {rule}")


def parse(parser: Parser, argv: list[str], **given: Any) -> argparse.Namespace:
    """``given``: what every command finds in its arguments besides. Ends the process as ``Parser.error`` does."""
    args, unknown = parser.parse_known_args(argv, argparse.Namespace(argv=argv, parser=parser, **given))
    if unknown:
        getattr(args, "spoken_to", parser).refuse(unknown)
    return args


def subparsers(parser: argparse.ArgumentParser) -> dict[str, Parser]:
    """The commands of ``parser``, by name and in their order."""
    (action,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    return dict(action.choices)
