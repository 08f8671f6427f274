"""One line an event, as JSON for machines or text for people; always on stderr, stdout belongs to the command."""

import logging
import sys

import structlog

from speaker.settings import LogFormat


def configure(format: LogFormat) -> None:  # noqa: A002 -- the flag's own name
    """Set up structlog for the process. ``event`` is a fixed word; everything that varies is a field."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer(default=str)
        if format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
