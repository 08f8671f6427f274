"""How many examples Hypothesis tries: five times as many in ``make test-long PART=searches``, by its own profile."""

import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "unit")
TIMES = {"unit": 1, "long": 5}[PROFILE]


def examples(usual: int = 100) -> int:
    return usual * TIMES
