"""Seeds of independent random sequences, and random variables that are functions of uniform numbers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def combine(seed: int, number: int) -> int:
    """Return a seed for the `number`-th of several independent sequences that all follow from `seed`."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0] >> 1)


def gamma_quantile(alpha: float, uniform: Tensor) -> Tensor:
    """Turn uniform numbers into Gamma(alpha) variables by inverting the distribution function.

    A sampler would consume a number of random draws that depends on their values. With the inverse, each variable is a
    function of one uniform number. Divided by their sum, the variables are proportions from a Dirichlet(alpha).

    Args:
        alpha: the shape parameter, positive.
        uniform: numbers between 0 and 1, float64 of any shape, on any device.

    Returns:
        float64 of the same shape, on the CPU. Values are at least 1e-300, so that a sum of them is never zero.

    Raises:
        ModuleNotFoundError: if scipy is not installed.
    """
    try:
        from scipy.special import gammaincinv
    except ModuleNotFoundError as error:
        message = "unbalanced classes are drawn with scipy, which is not installed: pip install 'sibcore[notebooks]'"
        raise ModuleNotFoundError(message, name="scipy") from error
    return torch.from_numpy(gammaincinv(alpha, uniform.cpu().numpy())).clamp_min(1e-300)
