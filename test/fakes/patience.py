"""How long tests wait where the product is to act at once.

Nothing is measured by tests (that is what `bench/` is for).  Such a bound only tells acting at once
from waiting for a timer, a call's deadline or a person, which takes from 30 s to minutes.
"""

PROMPT_S = 20.0
