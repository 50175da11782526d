"""The claims of notebook 02: what the paper says of the spinning lines, and what we find at its settings."""

from __future__ import annotations

import numpy as np

from sibrepro.claim import AGREES, DIFFERS, REMARK, TOY, Claim
from sibrepro.facts import Record
from sibrepro.studies.spinning_lines import plan


def claims() -> list[Claim]:
    """Return the claims of this study, judged by the published runs at the paper's settings."""
    posterior = Claim(TOY, r"$D_{\rm KL}(q\Vert p(w\mid d))$ ends close to zero", "section 5.2", "“close to zero”")
    prior = Claim(TOY, r"$D_{\rm KL}(p_\psi\Vert p(w))$ ends close to zero", "section 5.2", "“close to zero”")
    towards = Claim(
        TOY,
        r"$\theta^k$ moves towards the truth step by step",
        "Figure 3",
        "“gradually”, and better than a BNN",
        headline="Spinning lines: each step moves towards the truth (Figure 3)",
    )
    sib, bnn, optimum = (experiment.published(plan.PAPER) for experiment in (plan.SIB, plan.BNN, plan.OPTIMUM))
    if not (sib and bnn and optimum):
        return [posterior, prior, towards]
    return [
        _close_to_zero(posterior, "kl_posterior", sib, optimum),
        _close_to_zero(prior, "kl_prior", sib, optimum),
        _towards_the_truth(towards, sib, bnn),
    ]


def _close_to_zero(claim: Claim, name: str, sib: Record, optimum: Record) -> Claim:
    """Judge a divergence: it counts as close to zero if it is below a tenth of the true I(w; d)."""
    information = plan.PAPER.information
    summed, averaged = f"sum/{name}", f"mean/{name}"
    ours = (
        f"{sib.metrics[summed]:.2f} nats ({sib.metrics[averaged]:.2f} with the 1/n of eq. (lik)); "
        f"the exact optimum of the objective has {optimum.metrics[summed]:.2f} ({optimum.metrics[averaged]:.2f})"
    )
    if sib.metrics[summed] < information / 10:
        return claim.measured(ours, AGREES, [sib, optimum])
    note = f"small only beside its start: the inputs hold {information:.2f} nats about $w$ in all"
    return claim.measured(ours, REMARK, [sib, optimum], note)


def _towards_the_truth(claim: Claim, sib: Record, bnn: Record) -> Claim:
    """Judge the steps: theta^k has to come closer to the posterior mean at each, and SIB has to beat the BNN."""
    theta = sib.arrays["theta"][0, : plan.PAPER.K + 1]  # first reading, steps 0 to K
    distances = np.abs(theta - sib.arrays["posterior_mean"]).mean((1, 2))
    falls = (np.diff(distances) < 0).all()
    error, error_of_bnn = sib.metrics["sum/mse"], bnn.metrics["mse"]
    steps = "closer at every step" if falls else "not closer at every step"
    ours = f"{steps}; test MSE {error:.3f}, BNN {error_of_bnn:.3f}"
    return claim.measured(ours, AGREES if falls and error < error_of_bnn else DIFFERS, [sib, bnn])
