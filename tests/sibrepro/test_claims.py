"""Each verdict turns as it should when the facts behind it change; without facts nothing is measured."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from adaptation_records import grid, stages

from sibrepro import claims, paper
from sibrepro.claim import AGREES, DIFFERS, HIGHER, LOWER, OPEN, REMARK, Claim
from sibrepro.facts import Experiment, Record, publish, published
from sibrepro.meta_training.settings import FewShot
from sibrepro.meta_training.training import FEW_SHOT
from sibrepro.studies.equal_footing import claims as comparison
from sibrepro.studies.equal_footing import plan as equal_footing
from sibrepro.studies.equal_footing.experiment import METHOD_COMPARISON
from sibrepro.studies.few_shot import claims as few_shot_claims
from sibrepro.studies.few_shot import plan as few_shot
from sibrepro.studies.few_shot import tables as few_shot_tables
from sibrepro.studies.pacs import claims as adaptation
from sibrepro.studies.pacs.experiment import ADAPTATION
from sibrepro.studies.pacs.second_stage import SECOND_STAGE
from sibrepro.studies.query_size import claims as sizes
from sibrepro.studies.query_size import plan as query_size
from sibrepro.studies.query_size.experiment import QUERY_SIZE, RESCALED
from sibrepro.studies.spinning_lines import claims as lines
from sibrepro.studies.spinning_lines import plan as toy
from sibrepro.studies.synthetic_gradients import claims as gradients_claims
from sibrepro.studies.synthetic_gradients import plan as synthetic_gradients
from sibrepro.studies.theory import claims as theory
from sibrepro.studies.theory.worlds import THEORY, ElboParams
from sibrepro.study import all_tables, studies

TASKS = 400
NOISE = np.random.default_rng(0).integers(-6, 7, TASKS)
FROZEN = {"features": "frozen", "steps": 300, "lr": 2e-3, "alpha": 1.0}
WORLDS = {
    "bound_slack": 0.1,
    "tightness_error": 1e-15,
    "constant_error": 1e-15,
    "largest_ratio": 0.9,
    "proof_step_fails": 0.2,
    "corollary_with_n_slack": 0.1,
    "corollary_printed_slack": 0.1,
}


@pytest.fixture(autouse=True)
def nothing_published(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_HOME", str(tmp_path / "home"))


class Untrained:
    """What a published few-shot run has to have besides its numbers."""

    def checkpoint(self, name):
        return {"number": torch.zeros(1)}, {}

    def checkpoint_hash(self, name):
        return "0" * 64


def record(experiment: Experiment, p, metrics, arrays=None) -> Record:
    values = dataclasses.asdict(p)
    return Record(experiment.id(p), experiment.version, values, metrics, {"data": {}}, arrays or {}, Untrained())


def right(accuracy: float, p: FewShot, queries: int = 75) -> np.ndarray:
    """Right answers of tasks that differ in difficulty, and a little from seed to seed."""
    drawn = np.random.default_rng(p.seed + 10 * p.K).integers(-1, 2, TASKS)
    noise = NOISE + drawn
    return np.clip(queries * accuracy / 100 + noise - noise.mean(), 0, queries).astype(np.float32)


def trained(accuracy: float, settings: list[FewShot]) -> list[Record]:
    """Every seed of a setting, as accurate on one shot as on five."""
    records = [record(FEW_SHOT, p, {}, {f"best/{shots}shot": right(accuracy, p) for shots in (1, 5)}) for p in settings]
    publish.add(FEW_SHOT, records)
    return records


def sib(shots: int, K: int) -> list[FewShot]:
    return few_shot.plan("cifar-fs", "conv4-64").sib[shots, K]


def gradients(kind: str, K: int, eta: float = 1e-3) -> list[FewShot]:
    return synthetic_gradients.plan("cifar-fs", "conv4-64")[kind, 1, K, eta]


def tried(
    experiment: Experiment, accuracy: float, shots: int, n: int, origin: tuple[str, str] = ("cifar-fs", "conv4-64")
) -> list[Record]:
    """SIB trained with n queries, tested with 15."""
    settings = query_size.plan(origin[0])[origin[1], shots, n]
    records = [record(experiment, p, {}, {"test/usual": right(accuracy, p)}) for p in settings]
    publish.add(experiment, records)
    return records


def worlds(**changes: float) -> list[Claim]:
    publish.add(THEORY, [record(THEORY, ElboParams(), WORLDS | changes)])
    return theory.claims()


def test_without_facts_nothing_is_measured_but_the_identities():
    """Those two are checked by the cells of notebook 01 itself, to the last digits, and need no run."""
    found = [claim for group in claims.claims().values() for _, claim in group]
    measured = [claim for claim in found if claim.verdict != OPEN]
    assert len(found) == sum(len(study.claims()) for study in studies().values())
    assert [claim.where for claim in measured] == ["eq. (vae)", "section 3"]
    assert all(claim.ours == "–" and claim.runs == () for claim in found if claim not in measured)


def test_missing_facts_leave_every_printed_number_not_measured():
    assert set(claims.compared()) == {name for name, table in all_tables().items() if table.own}
    for name, numbers in claims.compared().items():
        assert claims.counts(name) == ({OPEN: len(numbers)} if len(numbers) else {})
    printed = paper.few_shot().query("method == 'SIB'").dropna(subset="value")
    of_steps = paper.pacs().query("method == 'SIB-Rot'")
    expected = {"few_shot": printed, "synthetic_gradients": paper.synthetic_gradients()}
    expected |= {"query_size": paper.query_size(), "pacs": of_steps}
    assert {name: claims.counts(name)[OPEN] for name in expected} == {
        name: len(rows) for name, rows in expected.items()
    }


def test_numbers_are_counted_by_their_verdict():
    trained(59.2, sib(1, 0)), trained(90.0, sib(1, 3)), trained(50.0, sib(5, 0))
    printed, appendix = (len(claims.compared()[name]) for name in ("few_shot", "synthetic_gradients"))
    assert claims.counts("few_shot") == {AGREES: 1, HIGHER: 1, LOWER: 1, OPEN: printed - 3}
    # the appendix has these settings too, each tested on one shot and on five
    assert sum(claims.counts("synthetic_gradients").values()) == appendix
    assert claims.counts("synthetic_gradients")[OPEN] == appendix - 6


def test_a_number_of_another_network_does_not_count_as_a_measurement_of_the_papers():
    publish.add(ADAPTATION, grid({("SIB-Rot", 0): 70, ("SIB-Rot", 3): 72}, **FROZEN))
    numbers = claims.compared()["pacs"]
    assert numbers["ours"].notna().all()
    assert claims.counts("pacs") == {OPEN: len(numbers)}


@pytest.mark.parametrize("shots", [1, 5])
@pytest.mark.parametrize(("after", "verdict"), [(63.0, AGREES), (60.0, DIFFERS), (58.0, DIFFERS)])
def test_a_gain_counts_if_its_interval_is_above_zero(shots, after, verdict):
    before, behind = trained(60.0, sib(shots, 0)), trained(after, sib(shots, 3))
    gain, other = few_shot_claims.gains() if shots == 1 else reversed(few_shot_claims.gains())
    assert gain.paper.startswith("+9.5 points" if shots == 1 else "+1.7 points; +3.0 trained and tested on 5 shots")
    assert gain.ours.startswith(f"{after - 60:+.2f} ± ".replace("-", "−"))
    assert gain.verdict == verdict
    assert gain.runs == tuple(r.id for r in (*before, *behind))
    assert other.verdict == OPEN


def test_a_gain_with_one_side_missing_is_not_measured():
    trained(60.0, sib(1, 0))
    assert [claim.verdict for claim in few_shot_claims.gains()] == [OPEN, OPEN]


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [(59.4, AGREES), (61.0, HIGHER), (57.0, LOWER), (None, OPEN)],
)
def test_a_number_of_table_1_is_judged_by_the_intervals(ours, verdict):
    records = trained(ours, sib(1, 0)) if ours else []
    first = few_shot_claims.numbers(few_shot_tables.table())[0]
    assert first.paper == "59.2 ± 0.5 %"
    assert first.verdict == verdict
    assert first.ours.startswith(f"{ours:.1f} ± " if ours else "–")
    assert first.runs == tuple(r.id for r in records)
    assert [claim.verdict for claim in few_shot_claims.numbers(few_shot_tables.table())[1:]] == [OPEN] * 3


@pytest.mark.parametrize(("best", "verdict"), [(60.5, AGREES), (61.5, DIFFERS)])
def test_inductive_steps_agree_with_the_paper_if_none_gains_a_point(best, verdict):
    trained(60.0, gradients("inductive SIB", 0))
    trained(best, gradients("inductive SIB", 3)), trained(40.0, gradients("inductive SIB", 5, 1e-1))
    trained(59.0, gradients("inductive SIB", 1)), trained(59.0, gradients("inductive SIB", 1, 1e-1))
    nothing, better = gradients_claims.claims()
    assert nothing.verdict == verdict
    assert nothing.ours == f"at most {best - 60:+.2f} points in 8 settings"
    assert nothing.note.startswith("at η = 0.1 it loses up to 20.0")
    assert len(nothing.runs) == 5
    assert better.verdict == OPEN


def test_inductive_steps_without_a_start_to_compare_with_are_not_measured():
    trained(60.0, gradients("inductive SIB", 3))
    assert [claim.verdict for claim in gradients_claims.claims()] == [OPEN, OPEN]


@pytest.mark.parametrize(("synthetic", "verdict"), [(64.0, AGREES), (59.9, DIFFERS)])
def test_synthetic_gradients_are_judged_against_the_inductive_steps(synthetic, verdict):
    trained(60.0, gradients("inductive SIB", 3)), trained(synthetic, gradients("SIB", 3))
    better = gradients_claims.claims()[1]
    assert better.verdict == verdict
    assert better.ours.startswith(f"{synthetic - 60:+.2f} ± ".replace("-", "−"))
    assert len(better.runs) == 1 + 3


@pytest.mark.parametrize(
    ("many", "longer", "verdict", "note"),
    [
        (65.0, 69.5, REMARK, "the step is shorter than in training; with its trained length, −0.50 ± "),
        (65.0, 66.0, AGREES, "the step is shorter than in training; with its trained length, −4.00 ± "),
        (70.0, 70.0, DIFFERS, "the accuracy does not fall"),
        (72.0, 72.0, DIFFERS, "the accuracy does not fall"),
    ],
)
def test_too_many_queries_hurt_if_accuracy_falls_and_the_length_of_the_step_does_not_explain_it(
    many, longer, verdict, note
):
    few, last = tried(QUERY_SIZE, 70.0, 1, 10), tried(QUERY_SIZE, many, 1, 45)
    same = tried(RESCALED, longer, 1, 45)
    one, five = sizes.claims()
    assert "points from $n=10$ to $n=45$" in one.paper
    assert one.ours.startswith(f"{many - 70:+.2f} ± ".replace("-", "−"))
    assert one.verdict == verdict
    assert one.note.startswith(note)
    assert one.runs == tuple(r.id for r in (*few, *last, *same))
    assert five.verdict == OPEN


def test_numbers_of_mini_imagenet_are_told_where_they_are_measured():
    records = trained(58.2, few_shot.plan("mini-imagenet", "conv4-64").sib[1, 3])
    (claim,) = few_shot_claims.other_numbers(few_shot_tables.table())
    assert claim.claim == "accuracy of SIB, mini-ImageNet, Conv‑4‑64, 1‑shot, $K=3$"
    assert claim.paper == "58.0 ± 0.6 %"
    assert claim.ours.startswith("58.2 ± ")
    assert claim.verdict == AGREES
    assert claim.runs == tuple(record.id for record in records)


def test_query_sizes_are_told_of_the_papers_own_setting_where_it_is_measured():
    for origin, fall in ((("cifar-fs", "conv4-64"), 1.0), (("mini-imagenet", "conv4-128"), 3.0)):
        tried(QUERY_SIZE, 70.0, 1, 10, origin), tried(QUERY_SIZE, 70.0 - fall, 1, 45, origin)
        tried(RESCALED, 70.0, 1, 45, origin)
        assert sizes.claims()[0].ours.startswith(f"−{fall:.2f} ± ")
    assert sizes.claims()[0].ours.endswith("(mini-ImageNet, Conv‑4‑128)")


def test_query_sizes_without_the_test_of_the_steps_length_are_not_measured():
    tried(QUERY_SIZE, 70.0, 1, 10), tried(QUERY_SIZE, 60.0, 1, 45)
    assert [claim.verdict for claim in sizes.claims()] == [OPEN, OPEN]


@pytest.mark.parametrize(
    ("after", "verdict", "apart"),
    [
        (70.0, AGREES, True),
        (61.0, DIFFERS, False),
        (50.0, DIFFERS, True),
    ],
)
def test_pacs_is_judged_by_the_average_gain_of_each_kind_of_features(after, verdict, apart):
    publish.add(ADAPTATION, grid({("SIB-Rot", 0): 61.0, ("SIB-Rot", 3): after}, **FROZEN))
    publish.add(ADAPTATION, grid({("SIB-Rot", 0): 50.0, ("SIB-Rot", 3): 90.0}, **FROZEN | {"features": "shipped"}))
    tuned, frozen, _ = adaptation.claims()
    assert tuned.verdict == OPEN
    assert frozen.verdict == verdict
    assert frozen.ours.startswith(f"61.0 → {after:.1f} %, ")
    assert len(frozen.runs) == 2 * 4 * 2
    assert "frozen EfficientNet-Lite0" in frozen.note
    assert ("no significant difference" in frozen.note) is not apart
    publish.add(SECOND_STAGE, stages({("SIB-Rot", 0): 61.0, ("SIB-Rot", 3): after, ("SIB", 3): 61.0}))
    tuned, frozen, start = adaptation.claims()
    assert (tuned.verdict, start.verdict) == (verdict, verdict)
    assert tuned.ours.startswith(f"61.0 → {after:.1f} %, ")
    assert "two stages" in tuned.note
    assert not set(tuned.runs) & set(frozen.runs)


def test_pacs_without_one_of_the_four_domains_is_not_measured():
    records = grid({("SIB-Rot", 0): 61.0, ("SIB-Rot", 3): 70.0}, **FROZEN)
    publish.add(ADAPTATION, [r for r in records if r.params["target"] != "photo"])
    records = stages({("SIB-Rot", 0): 61.0, ("SIB-Rot", 3): 70.0})
    publish.add(SECOND_STAGE, [r for r in records if r.params["target"] != "photo"])
    assert {claim.verdict for claim in adaptation.claims()} == {OPEN}


def compared(**accuracies: float) -> list[Claim]:
    """One-shot runs of these methods, seeds alike, on balanced and on unbalanced queries."""
    for (method, tasks, shots), several in equal_footing.plan().items():
        if shots == 1 and tasks in ("", "mixture") and (accuracy := accuracies.get(method.replace("-", "_"))):
            found = {kind: right(accuracy, several[0]) for kind in ("balanced", "dirichlet2")}
            publish.add(
                METHOD_COMPARISON, [record(METHOD_COMPARISON, p, {"validation": accuracy}, found) for p in several]
            )
    return comparison.claims()


@pytest.mark.parametrize(("prototypical", "verdict"), [(60.0, AGREES), (64.9, AGREES), (65.0, DIFFERS)])
def test_sib_is_judged_against_the_best_trained_system_of_table_1(prototypical, verdict):
    first, second, *_ = compared(sib=65.0, prototypical=prototypical, maml=55.0, unem=80.0, pt_map=90.0)
    assert first.verdict == verdict
    assert "over Prototypical" in first.ours
    assert "the strongest of 2" in first.ours
    assert len(first.runs) == 3
    assert second.verdict == OPEN


@pytest.mark.parametrize(("rival", "verdict"), [(60.0, AGREES), (65.0, AGREES), (66.0, DIFFERS)])
def test_the_best_sib_is_judged_against_all_methods(rival, verdict):
    found = compared(sib=60.0, sib_set=65.0, pt_map=rival, prototypical=50.0)
    assert found[2].records[0].params["method"] == "sib-set"
    assert [claim.verdict for claim in found[2:4]] == [verdict, verdict]


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, REMARK),
        ({"constant_error": 0.5}, AGREES),
        ({"bound_slack": -1e-3}, DIFFERS),
        ({"tightness_error": 1e-3}, DIFFERS),
    ],
)
def test_theorem_1_holds_if_no_world_violates_it_and_says_something_if_its_bound_is_no_constant(changes, verdict):
    first = worlds(**changes)[2]
    assert (first.where, first.verdict) == ("Theorem 1", verdict)
    assert first.runs == (THEORY.id(ElboParams()),)
    assert ("violated" in first.ours) == (verdict == DIFFERS)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [({}, REMARK), ({"proof_step_fails": 0.0}, AGREES), ({"largest_ratio": 1.01}, DIFFERS)],
)
def test_theorem_2_holds_if_no_gap_exceeds_its_bound_and_its_proof_if_no_step_fails(changes, verdict):
    second = worlds(**changes)[3]
    assert (second.where, second.verdict) == ("Theorem 2", verdict)
    assert f"at most {changes.get('largest_ratio', 0.9):.2f} of its bound in 2,000 random worlds" in second.ours


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, REMARK),
        ({"corollary_with_n_slack": -1e-3}, DIFFERS),
        ({"corollary_printed_slack": -1e-3}, DIFFERS),
    ],
)
def test_the_corollary_holds_for_finite_data_if_neither_reading_is_violated(changes, verdict):
    last = worlds(**changes)[4]
    assert (last.where, last.verdict) == ("Corollary", verdict)


def spinning_lines(kl_posterior=0.01, kl_prior=0.01, mse=0.1, distances=(4.0, 3.0, 2.0, 1.0, 9.0)) -> list[Claim]:
    """theta^0 ... theta^{K+1} at these distances from the truth; the BNN's error is 0.2."""
    kls = {
        f"{reading}/{name}": value
        for reading in ("sum", "mean")
        for name, value in {"kl_posterior": kl_posterior, "kl_prior": kl_prior}.items()
    }
    theta = np.tile(np.array(distances)[None, :, None, None], (3, 1, 2, 5))
    arrays = {"theta": theta, "posterior_mean": np.zeros((2, 5))}
    publish.add(toy.SIB, [record(toy.SIB, toy.PAPER, kls | {"sum/mse": mse}, arrays)])
    publish.add(toy.BNN, [record(toy.BNN, toy.PAPER, {"mse": 0.2})])
    publish.add(toy.OPTIMUM, [record(toy.OPTIMUM, toy.PAPER, kls)])
    return lines.claims()


@pytest.mark.parametrize("name", ["kl_posterior", "kl_prior"])
@pytest.mark.parametrize(("value", "verdict"), [(0.07, AGREES), (0.072, REMARK)])
def test_a_divergence_is_close_to_zero_below_a_tenth_of_the_information(name, value, verdict):
    claim = spinning_lines(**{name: value})[("kl_posterior", "kl_prior").index(name)]
    assert claim.verdict == verdict
    assert claim.ours.startswith("0.07 nats")
    assert bool(claim.note) == (verdict == REMARK)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, AGREES),
        ({"mse": 0.3}, DIFFERS),
        ({"distances": (4.0, 3.0, 3.5, 1.0, 0.5)}, DIFFERS),
    ],
)
def test_theta_moves_towards_the_truth_if_every_trained_step_does_and_beats_the_bnn(changes, verdict):
    claim = spinning_lines(**changes)[2]
    assert claim.verdict == verdict
    assert claim.ours.startswith("not closer at every step" if "distances" in changes else "closer at every step")


def test_spinning_lines_without_the_bnn_or_the_optimum_are_not_measured():
    theta = {"theta": np.zeros((3, 5, 2, 5)), "posterior_mean": np.zeros((2, 5))}
    publish.add(toy.SIB, [record(toy.SIB, toy.PAPER, {"sum/mse": 0.1}, theta)])
    assert {claim.verdict for claim in lines.claims()} == {OPEN}


def test_the_table_of_a_notebook_has_its_claims_and_that_of_all_has_every_one():
    trained(60.0, sib(1, 0)), trained(64.0, sib(1, 3))
    header, _, *lines = claims.markdown("03").splitlines()
    assert header.count("|") == 5
    assert len(lines) == 2 + 4
    assert lines[0].startswith("| three synthetic gradient steps beat none, 1‑shot (Table 1) | +9.5 points | +4.00 ± ")
    assert lines[0].endswith("points | agrees |")
    assert lines[1].endswith("| – | not measured |")
    everything = claims.markdown().splitlines()[2:]
    assert len(everything) == sum(len(group) for group in claims.claims().values())
    assert set(lines) <= set(everything)
    numbers = {study.number for study in studies().values()}
    assert sum(len(claims.markdown(number).splitlines()[2:]) for number in numbers) == len(everything)


def test_every_run_behind_a_published_claim_is_a_published_one(monkeypatch):
    monkeypatch.delenv("SIB_HOME")
    known = {name for experiment in published.experiments() for name in published.find(experiment)}
    found = [claim for group in claims.claims().values() for _, claim in group]
    assert {run for claim in found for run in claim.runs} <= known
    assert all(claim.runs for claim in found if claim.verdict != OPEN and claim.where not in ("eq. (vae)", "section 3"))
