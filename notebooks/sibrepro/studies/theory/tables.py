"""The small tables of notebook 01."""

from __future__ import annotations

import math

import pandas as pd
import torch

from sibrepro.facts import Record
from sibrepro.theory import generalisation as gen


def proof_step() -> pd.DataFrame:
    """Return σ of the loss and of its average over n examples, for a loss that does not look at the data.

    The loss is l(w, z) = g(w) = ±1. The printed proof of Theorem 2 says that averaging divides σ by √n.
    """
    one, half = torch.ones(1, 1).double(), torch.full((1, 1, 2), 0.5).double()
    g = torch.tensor([[1.0, 1.0], [-1.0, -1.0]]).double().expand(1, 1, 2, 2)
    rows = {}
    for n in (1, 2, 4, 8):
        q_d, letters = gen.sequences(half, n)
        q_w = torch.full_like(q_d[..., None], 0.5).expand(-1, -1, -1, 2)
        trial = gen.Trial(one, q_d, q_w, half, letters, g)
        sigma = gen.terms(trial)["sigma2"].sqrt().item()
        average = gen.empirical_variance_proxy(trial).sqrt().item()
        rows[n] = {"σ of ℓ": sigma, "σ of L": average, "σ/√n, as the proof has it": sigma / math.sqrt(n)}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("n").round(3)


def known_sigmas() -> pd.DataFrame:
    """Return σ² as it is computed here beside its closed form, for a random sign and for biased coins."""
    rows = {"random sign ±1": ([-1.0, 1.0], 0.5, 1.0)}
    for bias in (0.01, 0.2, 0.45):
        rows[f"coin, p = {bias}"] = [0.0, 1.0], bias, (1 - 2 * bias) / (2 * math.log((1 - bias) / bias))
    found = {}
    for name, (values, chance, closed) in rows.items():
        probabilities = torch.tensor([1 - chance, chance]).double()
        sigma2 = gen.subgaussian_variance(torch.tensor(values).double(), probabilities).item()
        found[name] = {"σ² computed": sigma2, "closed form": closed}
    return pd.DataFrame.from_dict(found, orient="index").rename_axis("variable").round(5)


def log_normaliser(n: int = 75, ways: int = 5) -> pd.DataFrame:
    """Return log Z_n of a softmax whose likelihood is raised to the power 1/n, as its logits grow.

    log Z_n lies between 0, for a sure classifier, and (1 - 1/n) log k, for one that knows nothing.
    """
    logits = torch.randn(1000, ways, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = {}
    for scale in (0, 1, 10, 1000, 100_000):
        log_z = torch.logsumexp(torch.log_softmax(scale * logits, -1) / n, -1)  # log sum_y p(y|x,w)^(1/n)
        rows[f"{scale:,}"] = {
            "mean of log Z_n": log_z.mean().item(),
            "smallest": log_z.min().item(),
            "largest": log_z.max().item(),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("scale of the logits").round(2) + 0.0


def coins_over_n(record: Record) -> pd.DataFrame:
    """Return how the terms of the corollary scale with n in the world of three coins, a row for each n.

    Args:
        record: a run of `worlds`.
    """
    values = record.arrays
    sizes = values["corollary/n"]
    columns = {
        "plain sum: n gen": sizes * values["corollary/sum/gen"],
        "plain sum: I, nats": values["corollary/sum/information"],
        "1/n: n gen": sizes * values["corollary/mean/gen"],
        "1/n: n I, nats": sizes * values["corollary/mean/information"],
    }
    return pd.DataFrame(columns, index=pd.Index(sizes, name="n")).iloc[1::2].round(3)
