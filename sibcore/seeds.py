"""Seeds of independent streams."""

import numpy as np


def combine(seed: int, number: int) -> int:
    """A seed for the `number`-th of several independent streams."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0] >> 1)
