"""The parts of ``wire.shared.SharedOwner``."""
