"""What chance decides in tests: the same in every run, unless somebody wants to find something new.

``GANETI_TEST_SEED`` plays one sequence; ``GANETI_TEST_EXPLORE=1`` takes another one each time.
"""

from __future__ import annotations

import os
import random

EXPLORES = bool(os.environ.get("GANETI_TEST_EXPLORE"))


def seed() -> int:
    """Return where a test's random numbers begin; a test that fails should say it."""
    chosen = int(os.environ.get("GANETI_TEST_SEED", "0"))
    return chosen or (random.SystemRandom().randrange(1, 1 << 30) if EXPLORES else 1)
