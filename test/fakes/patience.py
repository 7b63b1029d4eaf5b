"""How long tests wait where the product is to act at once.

Nothing is measured by tests (that is what `bench/` is for).  Such a bound only tells acting at once
from waiting for what never comes, or for something that a test makes last for minutes.
"""

PROMPT_S = 60.0
