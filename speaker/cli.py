"""The commands and their exit codes."""


def main(argv: list[str] | None = None) -> int:
    raise NotImplementedError
