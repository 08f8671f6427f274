"""The errors that every reader of JSON has to expect."""

import msgspec

UNFIT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for text that does not fit; the last for too many brackets."""
