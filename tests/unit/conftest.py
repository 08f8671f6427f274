"""Hypothesis for every unit test: no example has a deadline, since a busy machine breaks no rule."""

from hypothesis import HealthCheck, settings

settings.register_profile("unit", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unit")
