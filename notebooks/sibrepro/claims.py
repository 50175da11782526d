"""The paper's claims, what was measured of each, and whether the two agree: the one place that says so.

Verdict cells of the notebooks, the README's table and the report's front page all come from here, from published facts
alone. What has no run behind it is "not measured", but for the two identities that notebook 01 and the tests check to
rounding wherever they run.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools

import numpy as np
import pandas as pd

from sibrepro import paper, tables
from sibrepro.equal_footing import plan as equal_footing
from sibrepro.equal_footing import tables as footing_tables
from sibrepro.facts import Record
from sibrepro.few_shot import plan as few_shot
from sibrepro.few_shot import tables as few_shot_tables
from sibrepro.few_shot.settings import RESCALED
from sibrepro.pacs import plan as pacs
from sibrepro.pacs import tables as pacs_tables
from sibrepro.query_size import plan as query_size
from sibrepro.query_size import tables as query_size_tables
from sibrepro.rivals import HEADS
from sibrepro.spinning_lines import plan as spinning_lines
from sibrepro.statistics import Score
from sibrepro.synthetic_gradients import plan as synthetic_gradients
from sibrepro.theory.study import THEORY, ElboParams

AGREES, REMARK, HIGHER, LOWER, DIFFERS, OPEN = "agrees", "partly", "higher", "lower", "differs", "not measured"
KINDS = (AGREES, REMARK, HIGHER, LOWER, DIFFERS, OPEN)
OF_NUMBERS = {tables.INSIDE: AGREES, tables.ABOVE: HIGHER, tables.BELOW: LOWER, tables.NOT_MEASURED: OPEN}
NETWORKS = {  # of Table 1's other numbers
    ("mini-imagenet", "conv4-64"): "mini-ImageNet, Conv‑4‑64, ",
    ("mini-imagenet", "conv4-128"): "mini-ImageNet, Conv‑4‑128, ",
    ("mini-imagenet", "wrn-28-10"): "mini-ImageNet, WRN‑28‑10, ",
    ("cifar-fs", "wrn-28-10"): "CIFAR-FS, WRN‑28‑10, ",
}
# the paper's own setting of the query-size study where it is measured, else ours
SIZES_OF = {
    ("mini-imagenet", "conv4-128"): "mini-ImageNet, Conv‑4‑128",
    ("cifar-fs", "conv4-64"): "CIFAR-FS, Conv‑4‑64",
}
NAMES = {"balanced": "balanced", "dirichlet2": "Dirichlet(2)"}  # of kinds of queries
OURS = "dataset == 'cifar-fs' and backbone == 'conv4-64' and method == 'SIB'"  # what Table 1 has of what is measured


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
        "Further tables": [*other_numbers(), *sizes(), *adaptation()],
        "Equal footing (the same features, tasks and budget for all)": footing(),
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
    """The first two are identities, and need no run."""
    evidence = Claim("01", r"$\log p(\mathcal D)$ = ELBO + the KLs to the true posteriors", "eq. (vae)", "a bound")
    evidence = evidence.measured("equality to 1e-10, Gaussian and other $q$", AGREES, [])
    text = r"with the true $\partial\ell/\partial\hat y$ for $\xi$, eq. (sib) descends the KL"
    ours, note = "equality to 1e-8, noise and KL term included", "with 1/n to a tempered posterior"
    identities = [evidence, Claim("01", text, "section 3", "holds").measured(ours, AGREES, [], note)]
    bound = r"the objective is bounded below by $I_q(w;d\mid t)+H_q(d\mid w,t)$"
    first = Claim("01", bound, "Theorem 1", "holds, and is tight")
    second = Claim("01", r"$\lvert\mathrm{gen}(q)\rvert\le\sqrt{2\sigma^2I_q(w;d\mid t)/n}$", "Theorem 2", "holds")
    corollary = Claim("01", "its corollary, a bound on the objective", "Corollary", "holds")
    record = THEORY.published(ElboParams())
    if record is None:
        return [*identities, first, second, corollary]
    m, worlds = record.metrics, f"{record.params['worlds']:,} random worlds"

    holds = m["bound_slack"] > 0 and m["tightness_error"] < 1e-10
    constant = m["constant_error"] < 1e-10
    note = r"the right side equals $H_q(d\mid t)$ whatever $q(w\mid d,t)$ is: nothing to optimise" if constant else ""
    verdict = DIFFERS if not holds else REMARK if constant else AGREES
    first = first.measured(f"{'true' if holds else 'violated'} in all of {worlds}", verdict, [record], note)

    largest, fails = m["largest_ratio"], m["proof_step_fails"]
    note = f"a step of the proof fails in {fails:.1%} of them; the notebook repairs it" if fails > 0 else ""
    verdict = DIFFERS if largest > 1 else REMARK if fails > 0 else AGREES
    second = second.measured(f"at most {largest:.2f} of the bound in {worlds}", verdict, [record], note)

    finite = min(m["corollary_with_n_slack"], m["corollary_printed_slack"]) > -1e-10
    ours = "true for finite data, even with $n\\,\\mathbb E L$; violated by densities"
    note = "a loss may be negative, and the $n$ is missing"
    return [*identities, first, second, corollary.measured(ours, REMARK if finite else DIFFERS, [record], note)]


def toy() -> list[Claim]:
    """At the paper's settings; "close to zero" is taken as below a tenth of the true I(w; d)."""
    posterior = Claim("02", r"$D_{\rm KL}(q\Vert p(w\mid d))$ ends close to zero", "section 5.2", "“close to zero”")
    prior = Claim("02", r"$D_{\rm KL}(p_\psi\Vert p(w))$ ends close to zero", "section 5.2", "“close to zero”")
    towards = Claim("02", r"$\theta^k$ moves towards the truth", "Figure 3", "better than a BNN")
    settings = spinning_lines.PAPER
    experiments = (spinning_lines.SIB, spinning_lines.BNN, spinning_lines.OPTIMUM)
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


def gains() -> list[Claim]:
    """What three synthetic gradient steps add, on the same tasks."""
    results = few_shot.published()
    found = few_shot_tables.gains(results)
    printed = paper.few_shot().query(OURS).set_index(["shots", "K"])["value"]
    shown = []
    for shots in (1, 5):
        text = f"{printed[shots, 3] - printed[shots, 0]:+.1f} points"
        if shots == 5:  # Table 1 prints the model trained on one shot
            text += f"; {_printed_gain(5):+.1f} trained and tested on 5 shots (appendix)"
        claim = Claim("03", f"three synthetic gradient steps improve on none, {shots}‑shot", "Table 1", text)
        if shots in found:
            records = [*results.sib[shots, 0], *results.sib[shots, 3]]
            claim = claim.measured(_points(found[shots]), _above_zero(found[shots]), records)
        shown.append(claim)
    return shown


def transduction() -> list[Claim]:
    """SIB against its inductive variant, over K and eta."""
    where, theirs = "appendix, $K$ and $\\eta$", f"{_printed_gain(1):+.1f} points"
    alone = "the true gradient on the support set alone does not improve on no step (inductive SIB)"
    nothing = Claim("04", alone, where, "“no improvement”")
    better = Claim("04", "the synthetic one on the queries does, 1‑shot, $K=3$", where, theirs)
    found = synthetic_gradients.published()
    inductive = {key[2:]: records for key, records in found.items() if key[0] == "inductive SIB"}
    start = inductive.get((0, synthetic_gradients.RATE))
    gains = {
        (tested, K, eta): few_shot.gain(start, records, tested)
        for (K, eta), records in inductive.items()
        if K and start
        for tested in synthetic_gradients.TESTED
    }
    if gains:
        most, least = (choose(gains, key=lambda key: gains[key].mean) for choose in (max, min))
        nothing = nothing.measured(
            f"at most {gains[most].mean:+.2f} points in {len(gains)} settings",
            AGREES if gains[most].mean < 1 else DIFFERS,
            few_shot.flat(inductive),
            f"at η = {least[2]:g} it loses up to {-gains[least].mean:.1f} (trained on one shot, tested on {least[0]})",
        )
    pair = [found.get((kind, 1, 3, synthetic_gradients.RATE)) for kind in ("inductive SIB", "SIB")]
    if all(pair):
        score = few_shot.gain(*pair)
        better = better.measured(f"{_points(score)} over the inductive one", _above_zero(score), [*pair[0], *pair[1]])
    return [nothing, better]


def numbers(dataset: str = "cifar-fs", backbone: str = "conv4-64") -> list[Claim]:
    """The numbers of SIB in Table 1; by default the four that need neither a large network nor mini-ImageNet."""
    setting = "dataset == @dataset and backbone == @backbone and method == 'SIB' and paper.notna()"
    results, shown = few_shot.published(dataset, backbone), []
    where = NETWORKS.get((dataset, backbone), "")
    for row in few_shot_table().query(setting).sort_values(["shots", "K"]).to_dict("records"):
        key = row["shots"], row["K"]
        theirs, ours = (f"{tables.interval(row[side], row[f'{side}_ci95'])} %" for side in ("paper", "ours"))
        claim = Claim("03", f"SIB, {where}{key[0]}‑shot, $K={key[1]}$", "Table 1", theirs)
        if key in results.sib:
            stronger = row["K"] == 0 and row["verdict"] == tables.ABOVE
            note = "a stronger feature network: no step is taken" if stronger else ""
            claim = claim.measured(ours, OF_NUMBERS[row["verdict"]], results.sib[key], note)
        shown.append(claim)
    return shown


def other_numbers() -> list[Claim]:
    """Those of other networks and of mini-ImageNet, as far as they are measured."""
    return [claim for origin in NETWORKS for claim in numbers(*origin) if claim.verdict != OPEN]


def sizes() -> list[Claim]:
    """Too many queries in training: judged by testing with 15, with as many, and with steps of the trained length."""
    printed = paper.query_size().query("split == 'test'").set_index(["shots", "n"])["value"]
    shown = []
    for shots in (1, 5):
        fall = f"{printed[shots, 45] - printed[shots, 10]:+.1f}".replace("-", "−")
        theirs = f"{fall} points from $n=10$ to $n=45$ (mini-ImageNet)"
        claim = Claim("06", f"too many queries $n$ in training hurt, {shots}‑shot", "appendix, query size", theirs)
        for (dataset, backbone), where in SIZES_OF.items():
            found, longer = query_size.published(dataset), query_size.published(dataset, RESCALED)
            few, many = (found.get((backbone, shots, n)) for n in (10, 45))
            same = longer.get((backbone, shots, 45))
            if few and many and same and claim.verdict == OPEN:
                fall, rest = (query_size_tables.difference(few, records) for records in (many, same))
                hurts = fall.mean + fall.ci95 < 0
                note = f"the length of the step: given its trained length back, {_points(rest)}" if hurts else "no fall"
                verdict = (REMARK if rest.mean > fall.mean / 2 else AGREES) if hurts else DIFFERS
                claim = claim.measured(f"{_points(fall)} ({where})", verdict, [*few, *many, *same], note)
        shown.append(claim)
    return shown


def adaptation() -> list[Claim]:
    """By the average over targets: on networks that were fine-tuned first, and on ImageNet's features."""
    printed = paper.pacs().query("target == 'average'").set_index(["method", "K"])["value"]
    theirs = f"{printed['SIB-Rot', 0]:.1f} → {printed['SIB-Rot', 3]:.1f} %"
    found, help_ = pacs.published(), "SIB-Rot's steps help on an unseen domain (PACS, average"
    kinds = {"fine-tuned": "EfficientNet-Lite0 at 96 pixels, two stages", "frozen": "frozen EfficientNet-Lite0"}
    shown = [
        _adapted(Claim("05", f"{help_}{end})", "appendix, PACS", theirs), found[kind], ("SIB-Rot", 0), note)
        for (kind, note), end in zip(kinds.items(), ("", "; ImageNet's features as they are"), strict=True)
    ]
    start = Claim(
        "05", r"$\theta^0=\lambda$ alone is not enough: eq. (ssup) comes first", "appendix, PACS", "“insufficient”"
    )
    return [*shown, _adapted(start, found["fine-tuned"], ("SIB", 3), "with three steps, from λ and from eq. (ssup)")]


def _adapted(claim: Claim, found: pacs.Scores, before: pacs.Key, note: str) -> Claim:
    """What SIB-Rot with three steps gains over `before`."""
    pair = [found.get(key, {}) for key in (before, ("SIB-Rot", 3))]
    score = pacs_tables.gains(*pair).get(pacs_tables.AVERAGE)
    if score is None:
        return claim
    values = " → ".join(f"{pacs_tables.scores(part)[pacs_tables.AVERAGE].mean:.1f}" for part in pair)
    apart = "; not told apart" if abs(score.mean) <= score.ci95 else ""
    records = [*few_shot.flat(pair[0]), *few_shot.flat(pair[1])]
    return claim.measured(f"{values} %, {_points(score)}", _above_zero(score), records, f"{note}{apart}")


def footing() -> list[Claim]:
    """SIB beside the trained systems of Table 1, and the best SIB beside all methods; the nearest one decides."""
    found, shown = equal_footing.published(), []
    printed = [footing_tables.title(method) for method in HEADS if method not in equal_footing.LATER]
    gaps = footing_tables.differences(found, "sib")
    gaps = gaps[gaps["method"].isin(printed)]
    for shots in equal_footing.SHOTS:
        claim = Claim("07", f"SIB outperforms previous methods, {shots}‑shot", "section 5.1", "“significantly”")
        shown.append(_nearest(claim, gaps, shots, "balanced", found.get(("sib", "mixture", shots)), ahead=True))
    confirmed = equal_footing.published(equal_footing.confirmation())
    for runs, where in ((found, ""), (confirmed, " on features used for no choice")):
        gaps = footing_tables.differences(runs)
        for shots, queries in itertools.product(equal_footing.SHOTS, NAMES):
            text = f"no method of today is ahead of the best SIB{where}, {shots}‑shot, {NAMES[queries]} queries"
            records = runs.get((footing_tables.best(runs, shots), "mixture", shots))
            shown.append(_nearest(Claim("07", text, "not in the paper", "–"), gaps, shots, queries, records))
    return shown


def _nearest(
    claim: Claim, gaps: pd.DataFrame, shots: int, queries: str, records: list[Record], ahead: bool = False
) -> Claim:
    """Judged by the least gain of a SIB: is it ahead, or at least not behind?"""
    part = gaps.query("shots == @shots and queries == @queries")
    if part.empty:
        return claim
    nearest = part.loc[part["gain"].idxmin()]
    score = Score(nearest["gain"], nearest["ci95"])
    good = score.mean > score.ci95 if ahead else score.mean + score.ci95 >= 0
    ours = f"{_points(score)} over {nearest['method']}, the nearest of {len(part)} on the same features"
    return claim.measured(ours, AGREES if good else DIFFERS, records)


@functools.cache
def few_shot_table() -> pd.DataFrame:
    return tables.few_shot(few_shot_tables.table_rows())


@functools.cache
def compared() -> dict[str, pd.DataFrame]:
    """The four tables that have the paper's numbers, by name, made of published facts."""
    gradients = synthetic_gradients.table_rows(synthetic_gradients.published())
    return {
        "few_shot": few_shot_table(),
        "synthetic_gradients": tables.synthetic_gradients(gradients),
        "query_size": tables.query_size(query_size_tables.published_rows()),
        "pacs": pacs_tables.table(pacs.published()),
    }


def counts(name: str) -> dict[str, int]:
    """How many of the paper's numbers of its own method have which verdict, in the order of `KINDS`."""
    table = compared()[name]
    if name == "few_shot":
        table = table[table["method"] == "SIB"]
    if name == "pacs":  # a number of another network is no measurement of the paper's, and none has its ResNet-18
        table = table[table["method"] == "SIB-Rot"].drop_duplicates(["target", "K"])
        table = table.assign(verdict=tables.NOT_MEASURED)
    kinds = table[table["paper"].notna()]["verdict"].map(OF_NUMBERS)
    return {kind: int((kinds == kind).sum()) for kind in KINDS if (kinds == kind).any()}


def _printed_gain(shots: int) -> float:
    """Of three steps over none, trained and tested on the same shots, at eta = 1e-3."""
    rows = paper.synthetic_gradients().query("variant == 'SIB' and trained_shots == tested_shots == @shots")
    three, none = rows.query("K == 3 and eta == 1e-3"), rows.query("K == 0")
    return three["value"].item() - none["value"].item()


def _above_zero(score: Score) -> str:
    return AGREES if score.mean - score.ci95 > 0 else DIFFERS


def _points(score: Score) -> str:
    return f"{round(score.mean, 2) + 0.0:+.2f} ± {score.ci95:.2f} points".replace("-", "−")
