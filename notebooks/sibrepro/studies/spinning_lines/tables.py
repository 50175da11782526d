"""The tables of notebook 02, and the statements that it checks, made from run records."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from sibrepro.facts import Record
from sibrepro.studies.spinning_lines import model, optimum, plan
from sibrepro.studies.spinning_lines.model import SpinningLines, likelihood_weights

# The columns of tables, by the names of `model.measures`.
COLUMNS = {
    "kl_posterior": "E KL(q‖p(w|d)), nats",
    "kl_prior": "KL(p_ψ‖p(w)), nats",
    "information": "E KL(q‖p_ψ), nats",
    "mse": "test MSE",
}
# One parameter of the problem is changed in each row of `conditions`.
CHANGES = ({}, {"n": 128}, {"n": 512}, {"sigma_w": 0.3}, {"sigma": 2.0}, {"sigma": 3.0})


def closed_forms(p: SpinningLines) -> pd.DataFrame:
    """Return the closed forms of a problem beside their estimates from simulated tasks, a row each."""
    tasks = max(1_600_000 // p.n, 2000)
    x, w = model.sample_tasks(dataclasses.replace(p, tasks=tasks, seeds=1), stream=7)
    rest = w - model.posterior_mean(p, x)
    mean, std = p.prior
    correlation = np.corrcoef(w[0], (w - rest)[0])[0, 1]  # for Gaussians, I = -log(1 - correlation²) / 2
    rows = {
        "mean of p(w)": (mean, w.mean()),
        "standard deviation of p(w)": (std, w.std()),
        "mean of w − E[w|d]": (0.0, rest.mean()),
        "standard deviation of p(w|d)": (p.sigma_w, rest.std()),
        "I(w;d), nats": (p.information, -0.5 * np.log1p(-(correlation**2))),
    }
    table = pd.DataFrame(rows, index=["closed form", f"{tasks:,} simulated tasks"]).T.astype(float)
    return table.rename_axis("quantity").round(4)


def beside_published(reached: Mapping[str, float]) -> pd.DataFrame:
    """Return what the notebook's own training reached beside the first seed of the published run, a row each.

    Args:
        reached: the last value of curves of `model.measures`, trained as at the paper's settings with the sum.
    """
    published = plan.SIB.published(plan.PAPER)
    rows = {}
    for name, value in reached.items():
        there = published.arrays[name][0, -1, 0] if published else float("nan")
        rows[COLUMNS[name]] = {"these cells": value, "published run, seed 0": there, "difference": value - there}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("on 240 test tasks").round(4) + 0.0


def errors(p: SpinningLines, sib: Record, bnn: Record) -> pd.DataFrame:
    """Return the test errors of SIB and of the BNN, beside the least error that each could reach.

    Args:
        p: the settings of both runs.
        sib: a run of `model.sib_experiment`.
        bnn: a run of `model.bnn_experiment`.
    """
    floor = (p.sigma**2 + p.mu**2) * p.sigma_w**2
    rows = [("BNN", bnn.metrics["mse"], model.bnn_floor(p))]
    rows += [(f"SIB, {name}", sib.metrics[f"{name}/mse"], floor) for name in likelihood_weights(p)]
    return pd.DataFrame(rows, columns=["method", "test MSE", "least possible"]).set_index("method").round(4)


def optimum_and_training(p: SpinningLines, sib: Record, exact: Record) -> pd.DataFrame:
    """Return the exact optimum, the best that a linear ξ reaches and what training reached, for each reading.

    Args:
        p: the settings of both runs.
        sib: a run of `model.sib_experiment`.
        exact: a run of `optimum.experiment`.
    """
    rows = {}
    for name in likelihood_weights(p):
        sources = {
            "exact optimum": (exact, name),
            f"linear ξ, K = {p.K}": (exact, f"{name}/linear"),
            f"trained, {p.epochs} epochs": (sib, name),
        }
        for kind, (record, where) in sources.items():
            rows[name, kind] = {title: record.metrics[f"{where}/{column}"] for column, title in COLUMNS.items()}
    return pd.DataFrame(rows).T.rename_axis(["reading", ""]).round(3)


def excess(p: SpinningLines, sib: Record, exact: Record) -> pd.DataFrame:
    """Return by how much SIB's objective exceeds that of the exact optimum on the same test tasks.

    The arguments are those of `optimum_and_training`.

    Returns:
        A row for each reading, with the excess before and after training in nats, means over seeds. On few tasks the
        excess may be slightly negative, because the optimum is that of the expected objective.
    """
    v, S, w = (sib.arrays[key].astype(float) for key in ("posterior_mean", "sum_of_x_squared", "w"))
    rows = {}
    for r, (name, weight) in enumerate(likelihood_weights(p).items()):
        psi = exact.metrics[f"{name}/mean"], exact.metrics[f"{name}/std"]
        best = [optimum.objective_on(p, weight, psi, v[s], S[s], w[s]) for s in range(p.seeds)]
        start, end = ((sib.arrays["objective"][r, epoch] - best).mean() for epoch in (0, -1))
        rows[name] = {"before training, nats": start, "after training, nats": end}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("reading").round(3)


def conditions(p: SpinningLines) -> pd.DataFrame:
    """Return the exact optimum of the summed reading as one thing of the problem changes, a row for each change."""
    rows = {}
    for change in CHANGES:
        world = dataclasses.replace(p, **change)
        title = ", ".join(f"{name} = {value}" for name, value in change.items()) or "as here"
        rows[title] = {"true I(w;d), nats": world.information, **_divergences(optimum.solve(world, 1.0))}
    for steps in sorted({0, 1, p.K}):
        found = _divergences(optimum.solve_linear_xi(p, 1.0, steps))
        rows[f"linear ξ, K = {steps}"] = {"true I(w;d), nats": p.information, **found}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("changed").round(4)


def runs(records: Iterable[Record]) -> pd.DataFrame:
    """Return what runs of `model.sib_experiment` found under the summed reading, a row each, sorted by settings."""
    settings = ["n", "K", "sigma", "sigma_w", "epochs"]
    rows = {}
    for record in records:
        p = SpinningLines(**record.params)
        row = {name: getattr(p, name) for name in [*settings, "seeds"]}
        row["true I(w;d), nats"] = p.information
        for name in ("kl_posterior", "kl_prior", "information"):
            row[COLUMNS[name]] = record.metrics[f"sum/{name}"]
        row["E KL(q‖p(w|d)) / I(w;d)"] = record.metrics["sum/kl_posterior"] / p.information
        rows[record.id] = row
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("run").sort_values(settings).round(3)


def distances(p: SpinningLines, sib: Record, reading: str) -> np.ndarray:
    """Return the mean distance of theta^k from E[w|x] over all test tasks and seeds, for k = 0 ... K."""
    theta = sib.arrays["theta"][list(likelihood_weights(p)).index(reading), : p.K + 1]
    return np.abs(theta - sib.arrays["posterior_mean"]).mean((1, 2))


def statements(p: SpinningLines, sib: Record, bnn: Record, exact: Record, reading: str) -> dict[str, bool]:
    """Return the statements that the notebook checks, and whether each is true of its runs.

    Args:
        p: the settings of the runs.
        sib: a run of `model.sib_experiment`.
        bnn: a run of `model.bnn_experiment`.
        exact: a run of `optimum.experiment`.
        reading: the reading of the likelihood whose steps are followed.
    """
    gap = bnn.arrays["mse"][-1].mean() / model.bnn_floor(p)
    summed = sib.arrays["mse"][list(likelihood_weights(p)).index("sum"), -1]
    start, end = excess(p, sib, exact).to_numpy().T
    readings = likelihood_weights(p)
    best = np.array([exact.metrics[f"{name}/objective"] for name in readings])
    linear = np.array([exact.metrics[f"{name}/linear/objective"] for name in readings])
    found = {
        f"θᵏ comes closer to E[w|x] at every step, reading {reading}": np.diff(distances(p, sib, reading)) < 0,
        "SIB (sum) has a lower test MSE than the BNN in every seed": summed < bnn.arrays["mse"][-1],
        "the BNN's test MSE is within 25 % of the least of any single curve": 0.9 < gap < 1.25,
        "training removes over 90 % of the excess over the optimum, every reading": end < 0.1 * start,
        "no reading ends below the exact optimum by more than 0.05 nats": end > -0.05,
        "a linear ξ is never better than the exact optimum": linear >= best - 1e-9,
    }
    return {statement: bool(np.all(holds)) for statement, holds in found.items()}


def this_run(p: SpinningLines, sib: Record, exact: Record) -> pd.DataFrame:
    """Return whether both divergences end close to zero in a run, a row for each reading.

    Close to zero means below a tenth of the true I(w;d). The arguments are those of `optimum_and_training`.
    """
    rows = {}
    for r, name in enumerate(likelihood_weights(p)):
        posterior, prior, information = (
            sib.metrics[f"{name}/{curve}"] for curve in ("kl_posterior", "kl_prior", "information")
        )
        start = sib.arrays["kl_posterior"][r, 0].mean()
        judged = "small only beside its start" if posterior < 0.1 * start else "no"
        if information < 0.05 * p.information:
            judged = "no: q ignores x"
        if max(posterior, prior) < 0.1 * p.information:
            judged = "yes"
        best = (exact.metrics[f"{name}/{curve}"] for curve in ("kl_posterior", "kl_prior"))
        rows[name] = {
            "E KL(q‖p(w|d)), start → end": f"{start:.1f} → {posterior:.2f} nats",
            "KL(p_ψ‖p(w)), end": f"{prior:.2f} nats",
            "both at the optimum": "{:.2f}, {:.2f} nats".format(*best),
            "close to zero?": judged,
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("reading")


def _divergences(best: optimum.Optimum) -> dict[str, float]:
    """Return both divergences of an optimum, with the titles of their columns."""
    return {COLUMNS[name]: best[name] for name in ("kl_posterior", "kl_prior")}
