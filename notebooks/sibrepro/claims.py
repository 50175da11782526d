"""The paper's claims, what was measured of each, and whether the two agree: the one place that says so.

Verdict cells of the notebooks, the README's table and the report's front page all come from here, from published facts
alone. What has no run behind it is "not measured", but for the two identities that notebook 01 and the tests check to
rounding wherever they run.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pandas as pd

from sibrepro import paper, tables
from sibrepro.facts import Record
from sibrepro.few_shot import plan as few_shot
from sibrepro.few_shot import tables as few_shot_tables
from sibrepro.few_shot.settings import RESCALED
from sibrepro.pacs import plan as pacs
from sibrepro.pacs import tables as pacs_tables
from sibrepro.query_size import plan as query_size
from sibrepro.query_size import tables as query_size_tables
from sibrepro.spinning_lines import plan as spinning_lines
from sibrepro.statistics import Score
from sibrepro.synthetic_gradients import plan as synthetic_gradients
from sibrepro.synthetic_gradients import tables as gradient_tables
from sibrepro.theory.study import THEORY, ElboParams

AGREES, REMARK, HIGHER, LOWER, DIFFERS, OPEN = "agrees", "partly", "higher", "lower", "differs", "not measured"
KINDS = (AGREES, REMARK, HIGHER, LOWER, DIFFERS, OPEN)
OF_NUMBERS = {tables.INSIDE: AGREES, tables.ABOVE: HIGHER, tables.BELOW: LOWER, tables.NOT_MEASURED: OPEN}
PACS_NETWORK = "resnet18"


@dataclasses.dataclass(frozen=True)
class Claim:
    """One claim; texts are Markdown with maths."""

    notebook: str  # its number
    claim: str
    where: str  # in the paper
    paper: str
    ours: str = "–"
    verdict: str = OPEN
    note: str = ""
    records: tuple[Record, ...] = ()

    def measured(self, ours: str, verdict: str, records: list[Record], note: str = "") -> Claim:
        return dataclasses.replace(self, ours=ours, verdict=verdict, records=tuple(records), note=note)

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(record.id for record in self.records)


@functools.cache
def claims() -> dict[str, list[Claim]]:
    """All claims, by the part of the paper that they belong to."""
    return {
        "Theory": theory(),
        "Spinning lines": toy(),
        "Few-shot classification (CIFAR-FS, Conv‑4‑64, 5-way)": [*gains(), *transduction(), *numbers()],
        "Further tables": [*sizes(), *adaptation()],
    }


def markdown(notebook: str = "") -> str:
    """The claims of a notebook (or of all) as a table."""
    shown = [claim for part in claims().values() for claim in part if notebook in ("", claim.notebook)]
    lines = ["| the paper says | it prints | we find | agrees? |", "|---|---|---|---|"]
    for claim in shown:
        verdict = f"{claim.verdict}: {claim.note}" if claim.note else claim.verdict
        lines.append(f"| {claim.claim} ({claim.where}) | {claim.paper} | {claim.ours} | {verdict} |")
    return "\n".join(lines)


def theory() -> list[Claim]:
    evidence = Claim(
        "01", r"$\log p(\mathcal D)$ = ELBO + the KLs to the true posteriors", "eq. (vae)", "a bound"
    ).measured("equality to 1e-10, Gaussian and other $q$", AGREES, [])
    descent = Claim(
        "01", r"with the true $\partial\ell/\partial\hat y$ for $\xi$, eq. (sib) descends the KL", "section 3", "holds"
    ).measured("equality to 1e-8, noise and KL term included", AGREES, [], "with 1/n to a tempered posterior")
    first = Claim(
        "01", r"the objective is bounded below by $I_q(w;d\mid t)+H_q(d\mid w,t)$", "Theorem 1", "holds, and is tight"
    )
    second = Claim("01", r"$\lvert\mathrm{gen}(q)\rvert\le\sqrt{2\sigma^2I_q(w;d\mid t)/n}$", "Theorem 2", "holds")
    corollary = Claim("01", "its corollary, a bound on the objective", "Corollary", "holds")
    record = THEORY.published(ElboParams())
    if record is None:
        return [evidence, descent, first, second, corollary]
    m, worlds = record.metrics, f"{record.params['worlds']:,}"
    holds = m["bound_slack"] > 0 and m["tightness_error"] < 1e-10
    constant = m["constant_error"] < 1e-10
    finite = min(m["corollary_with_n_slack"], m["corollary_printed_slack"]) > -1e-10
    return [
        evidence,
        descent,
        first.measured(
            f"{'true' if holds else 'violated'} in all of {worlds} random worlds",
            DIFFERS if not holds else REMARK if constant else AGREES,
            [record],
            r"the right side equals $H_q(d\mid t)$ whatever $q(w\mid d,t)$ is: nothing to optimise" if constant else "",
        ),
        second.measured(
            f"at most {m['largest_ratio']:.2f} of the bound in {worlds} random worlds",
            DIFFERS if m["largest_ratio"] > 1 else REMARK if m["proof_step_fails"] > 0 else AGREES,
            [record],
            f"a step of the proof fails in {m['proof_step_fails']:.1%} of them; the notebook repairs it"
            if m["proof_step_fails"] > 0
            else "",
        ),
        corollary.measured(
            "true for finite data, even with $n\\,\\mathbb E L$; violated by densities",
            REMARK if finite else DIFFERS,
            [record],
            "a loss may be negative, and the $n$ is missing",
        ),
    ]


def toy() -> list[Claim]:
    """At the paper's settings; "close to zero" is taken as below a tenth of the true I(w; d)."""
    posterior = Claim("02", r"$D_{\rm KL}(q\Vert p(w\mid d))$ ends close to zero", "section 5.2", "“close to zero”")
    prior = Claim("02", r"$D_{\rm KL}(p_\psi\Vert p(w))$ ends close to zero", "section 5.2", "“close to zero”")
    towards = Claim("02", r"$\theta^k$ moves towards the truth", "Figure 3", "better than a BNN")
    settings = spinning_lines.PAPER
    record, bnn, best = (
        experiment.published(settings)
        for experiment in (spinning_lines.SIB, spinning_lines.BNN, spinning_lines.OPTIMUM)
    )
    if not (record and bnn and best):
        return [posterior, prior, towards]
    m, judged = record.metrics, []
    for claim, name in ((posterior, "kl_posterior"), (prior, "kl_prior")):
        small = m[f"sum/{name}"] < settings.information / 10
        judged.append(
            claim.measured(
                f"{m[f'sum/{name}']:.2f} nats (1/n: {m[f'mean/{name}']:.2f}); the objective's own optimum has "
                f"{best.metrics[f'sum/{name}']:.2f} ({best.metrics[f'mean/{name}']:.2f})",
                AGREES if small else REMARK,
                [record, best],
                "" if small else f"against its start only: all there is to know is {settings.information:.2f} nats",
            )
        )
    theta, steps = record.arrays["theta"][0], settings.K + 1
    distance = np.abs(theta - record.arrays["posterior_mean"]).mean((1, 2))[:steps]
    falls = bool((np.diff(distance) < 0).all())
    errors = f"squared error {m['sum/mse']:.3f}, BNN {bnn.metrics['mse']:.3f}"
    better = falls and m["sum/mse"] < bnn.metrics["mse"]
    ours = f"{'at every step' if falls else 'not at every step'}; {errors}"
    return [*judged, towards.measured(ours, AGREES if better else DIFFERS, [record, bnn])]


def gains() -> list[Claim]:
    """What three synthetic gradient steps add, on the same tasks."""
    results, printed = few_shot.published(), _printed_sib()
    found = few_shot_tables.gains(results)
    like_for_like = _printed_gradients(5, 3) - _printed_gradients(5, 0)
    shown = []
    for shots in (1, 5):
        text = f"{printed[shots, 3] - printed[shots, 0]:+.1f} points"
        if shots == 5:  # Table 1 prints the model trained on one shot
            text += f"; {like_for_like:+.1f} trained and tested on 5 shots (appendix)"
        claim = Claim("03", f"three synthetic gradient steps improve on none, {shots}‑shot", "Table 1", text)
        if shots in found:
            score = found[shots]
            verdict = AGREES if score.mean - score.ci95 > 0 else DIFFERS
            claim = claim.measured(_points(score), verdict, [*results.sib[shots, 0], *results.sib[shots, 3]])
        shown.append(claim)
    return shown


def transduction() -> list[Claim]:
    """SIB against its inductive variant, over K and eta."""
    found = synthetic_gradients.published()
    gains = {
        (tested, key[2], key[3]): few_shot.gain(found["inductive SIB", 1, 0, 1e-3], records, tested)
        for key, records in found.items()
        if key[0] == "inductive SIB" and key[2] and ("inductive SIB", 1, 0, 1e-3) in found
        for tested in synthetic_gradients.TESTED
    }
    nothing = Claim(
        "04",
        "the true gradient on the support set alone does not improve on no step (inductive SIB)",
        "appendix, $K$ and $\\eta$",
        "“no improvement”",
    )
    better = Claim("04", "the synthetic one on the queries does, 1‑shot, $K=3$", "appendix, $K$ and $\\eta$", "")
    better = dataclasses.replace(better, paper=f"{_printed_gradients(1, 3) - _printed_gradients(1, 0):+.1f} points")
    pair = [found.get((kind, 1, 3, 1e-3)) for kind in ("inductive SIB", "SIB")]
    if gains:
        most, least = (choose(gains, key=lambda key: gains[key].mean) for choose in (max, min))
        records = [record for key, part in found.items() if key[0] == "inductive SIB" for record in part]
        nothing = nothing.measured(
            f"at most {gains[most].mean:+.2f} points in {len(gains)} settings",
            AGREES if gains[most].mean < 1 else DIFFERS,
            records,
            f"at η = {least[2]:g} it loses up to {-gains[least].mean:.1f} (trained on one shot, tested on {least[0]})",
        )
    if all(pair):
        score = few_shot.gain(*pair)
        verdict = AGREES if score.mean - score.ci95 > 0 else DIFFERS
        better = better.measured(f"{_points(score)} over the inductive one", verdict, [*pair[0], *pair[1]])
    return [nothing, better]


def numbers() -> list[Claim]:
    """The four numbers of SIB in Table 1 that need neither a large network nor mini-ImageNet."""
    table = few_shot_table()
    results, shown = few_shot.published(), []
    for shots in (1, 5):
        for K in (0, 3):
            rows = table.query("method == 'SIB' and dataset == 'cifar-fs' and backbone == 'conv4-64'")
            (row,) = rows[(rows["shots"] == shots) & (rows["K"] == K) & rows["paper"].notna()].to_dict("records")
            claim = Claim("03", f"SIB, {shots}‑shot, $K={K}$", "Table 1", _percent(row["paper"], row["paper_ci95"]))
            if (shots, K) in results.sib:
                note = "a stronger feature network: no step is taken" if K == 0 else ""
                ours = _percent(row["ours"], row["ours_ci95"])
                claim = claim.measured(ours, OF_NUMBERS[row["verdict"]], results.sib[shots, K], note)
            shown.append(claim)
    return shown


def sizes() -> list[Claim]:
    """Too many queries in training: judged by testing with 15, with as many, and with steps of the trained length."""
    printed = paper.query_size().query("split == 'test'").set_index(["shots", "n"])["value"]
    found, longer = query_size.published(), query_size.published("cifar-fs", RESCALED)
    shown = []
    for shots in (1, 5):
        fall = f"{printed[shots, 45] - printed[shots, 10]:+.1f}".replace("-", "−")
        theirs = f"{fall} points from $n=10$ to $n=45$ (mini-ImageNet)"
        claim = Claim("06", f"too many queries $n$ in training hurt, {shots}‑shot", "appendix, query size", theirs)
        few, many = (found.get(("conv4-64", shots, n), []) for n in (10, 45))
        if few and many and (same := longer.get(("conv4-64", shots, 45))):
            fall, rest = (query_size_tables.difference(few, records) for records in (many, same))
            hurts = fall.mean + fall.ci95 < 0
            note = f"the length of the step: given its trained length back, {_points(rest)}" if hurts else "no fall"
            verdict = (REMARK if rest.mean > fall.mean / 2 else AGREES) if hurts else DIFFERS
            claim = claim.measured(f"{_points(fall)} (CIFAR-FS, Conv‑4‑64)", verdict, [*few, *many, *same], note)
        shown.append(claim)
    return shown


def adaptation() -> list[Claim]:
    """By the average over targets, with frozen features: what has seeds enough."""
    printed = paper.pacs().query("target == 'average'").set_index(["method", "K"])["value"]
    theirs = f"{printed['SIB-Rot', 0]:.1f} → {printed['SIB-Rot', 3]:.1f} %"
    claim = Claim("05", "SIB-Rot's steps help on an unseen domain (PACS, average)", "appendix, PACS", theirs)
    scores = pacs.published().get("frozen", {})
    pair = [scores.get(("SIB-Rot", K), {}) for K in (0, 3)]
    score = pacs_tables.gains(*pair).get(pacs_tables.AVERAGE)
    if score is None:
        return [claim]
    values = " → ".join(f"{pacs_tables.scores(part)[pacs_tables.AVERAGE].mean:.1f}" for part in pair)
    note = "frozen EfficientNet-Lite0"
    note += "; not told apart from no step" if abs(score.mean) <= score.ci95 else ""
    records = [record for part in pair for record in few_shot.flat(part)]
    return [
        claim.measured(f"{values} %, {_points(score)}", AGREES if score.mean > score.ci95 else DIFFERS, records, note)
    ]


@functools.cache
def few_shot_table() -> pd.DataFrame:
    return tables.few_shot(few_shot_tables.table_rows())


@functools.cache
def compared() -> dict[str, pd.DataFrame]:
    """The four tables that have the paper's numbers, by name, made of published facts."""
    return {
        "few_shot": few_shot_table(),
        "synthetic_gradients": tables.synthetic_gradients(gradient_tables.table_rows(synthetic_gradients.published())),
        "query_size": tables.query_size(query_size_tables.published_rows()),
        "pacs": pacs_tables.table(pacs.published()),
    }


def counts(name: str) -> dict[str, int]:
    """How many of the paper's numbers of its own method have which verdict, in the order of `KINDS`."""
    table = compared()[name]
    if name == "few_shot":
        table = table[table["method"] == "SIB"]
    if name == "pacs":  # a number of another network is no measurement of the paper's
        table = table[table["method"] == "SIB-Rot"].drop_duplicates(["target", "K"])
        same = table["backbone"] == PACS_NETWORK
        table = table.assign(verdict=np.where(same & table["ours"].notna(), tables.INSIDE, tables.NOT_MEASURED))
    kinds = table[table["paper"].notna()]["verdict"].map(OF_NUMBERS)
    return {kind: int((kinds == kind).sum()) for kind in KINDS if (kinds == kind).any()}


def _printed_sib() -> dict[tuple[int, int], float]:
    rows = paper.few_shot().query("dataset == 'cifar-fs' and backbone == 'conv4-64' and method == 'SIB'")
    return {(row.shots, row.K): row.value for row in rows.itertuples()}


def _printed_gradients(shots: int, K: int) -> float:
    """Of SIB trained and tested on the same shots, at eta = 1e-3."""
    rows = paper.synthetic_gradients().query(
        "variant == 'SIB' and trained_shots == @shots and tested_shots == @shots and K == @K"
    )
    return rows[(rows["eta"] == 1e-3) | (rows["K"] == 0)]["value"].item()


def _points(score: Score) -> str:
    return f"{round(score.mean, 2) + 0.0:+.2f} ± {score.ci95:.2f} points".replace("-", "−")


def _percent(value: float, ci95: float) -> str:
    return f"{value:.1f} ± {ci95:.1f} %" if pd.notna(ci95) else f"{value:.1f} %"
