"""What the paper claims of the spinning lines, and what was found at its settings."""

from __future__ import annotations

import numpy as np

from sibrepro.claim import AGREES, DIFFERS, REMARK, TOY, Claim
from sibrepro.studies.spinning_lines import plan


def claims() -> list[Claim]:
    """At the paper's settings; "close to zero" is taken as below a tenth of the true I(w; d)."""
    posterior = Claim(TOY, r"$D_{\rm KL}(q\Vert p(w\mid d))$ ends close to zero", "section 5.2", "“close to zero”")
    prior = Claim(TOY, r"$D_{\rm KL}(p_\psi\Vert p(w))$ ends close to zero", "section 5.2", "“close to zero”")
    towards = Claim(TOY, r"$\theta^k$ moves towards the truth", "Figure 3", "better than a BNN")
    settings = plan.PAPER
    experiments = (plan.SIB, plan.BNN, plan.OPTIMUM)
    record, bnn, best = (experiment.published(settings) for experiment in experiments)
    if not (record and bnn and best):
        return [posterior, prior, towards]
    m, found = record.metrics, []
    for claim, name in ((posterior, "kl_posterior"), (prior, "kl_prior")):
        ours, optimum = ([f"{r.metrics[f'{kind}/{name}']:.2f}" for kind in ("sum", "mean")] for r in (record, best))
        text = f"{ours[0]} nats (1/n: {ours[1]}); the objective's own optimum has {optimum[0]} ({optimum[1]})"
        small = m[f"sum/{name}"] < settings.information / 10
        note = "" if small else f"against its start only: all there is to know is {settings.information:.2f} nats"
        found.append(claim.measured(text, AGREES if small else REMARK, [record, best], note))
    theta = record.arrays["theta"][0, : settings.K + 1]
    falls = bool((np.diff(np.abs(theta - record.arrays["posterior_mean"]).mean((1, 2))) < 0).all())
    error, of_bnn = m["sum/mse"], bnn.metrics["mse"]
    ours = f"{'at every step' if falls else 'not at every step'}; squared error {error:.3f}, BNN {of_bnn:.3f}"
    return [*found, towards.measured(ours, AGREES if falls and error < of_bnn else DIFFERS, [record, bnn])]
