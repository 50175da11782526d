"""What notebook 03 asks for, and which published runs its tables and figures are made of."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from few_shot_records import FULL, QUICK, computed_here, own_home, published, record, rival, sib, unbalanced

from sibrepro.facts import Record
from sibrepro.facts.record import as_dict
from sibrepro.meta_training import shipped
from sibrepro.meta_training.pretraining import PRETRAIN
from sibrepro.meta_training.runs import SHIPPED, gain, sib_score
from sibrepro.meta_training.settings import FewShot
from sibrepro.meta_training.training import FEW_SHOT
from sibrepro.rivals import BASELINES
from sibrepro.studies.few_shot import plan
from sibrepro.studies.few_shot.compression import COMPRESSION, JPEG
from sibrepro.studies.few_shot.imbalance import UNBALANCED
from sibrepro.studies.few_shot.plan import FewShotNotebook, FewShotRuns
from sibrepro.studies.few_shot.rivals import RIVAL


@pytest.fixture
def home(tmp_path, monkeypatch):
    own_home(tmp_path / "home", monkeypatch)


def ids(results: FewShotRuns) -> dict[str, object]:
    """All runs of `results`, by what they are there for."""
    groups = {name: getattr(results, name) for name in ("sib", "inductive", "variants")}
    found = {name: {key: [r.id for r in seeds] for key, seeds in group.items()} for name, group in groups.items()}
    for name in ("rivals", "unbalanced"):
        found[name] = {key: r.id for key, r in getattr(results, name).items()}
    return found


def test_the_notebook_asks_for_every_combination_of_shots_K_and_seeds(home):
    p = FewShotNotebook(shots=[1, 5], K=[0, 3], seeds=2, seed=4, steps=10)
    found = {(e.seed, e.shots, e.K) for e in p.experiments()}
    assert found == {(seed, shots, K) for seed in (4, 5) for shots in (1, 5) for K in (0, 3)}
    assert len(p.experiments()) == 8
    assert all((e.steps, e.features, e.eta) == (10, "shipped", 1e-3) for e in p.experiments())
    assert {(r.method, r.shots) for r in p.rivals()} == {(name, shots) for name in BASELINES for shots in (1, 5)}


def test_shipped_features_are_asked_for_only_where_they_are():
    p = FewShotNotebook(datasets=["cifar-fs", "mini-imagenet"], backbones=["conv4-64", "wrn-28-10"])
    found = {(e.dataset, e.backbone): e.features for e in p.experiments()}
    assert found == {origin: "shipped" if shipped.file(*origin).is_file() else "images" for origin in found}
    assert sorted(found.values()) == ["images", "images", "images", "shipped"]
    assert all(shipped.file(*origin).is_file() for origin in SHIPPED)


def test_variants_change_one_thing_each(home):
    base = as_dict(dataclasses.replace(FewShotNotebook().experiments()[0], shots=1, K=3))

    def changed(p: FewShot) -> set[str]:
        return {name for name, value in as_dict(p).items() if value != base[name]}

    inductive = [{"transductive"}, {"transductive", "shots"}]
    variants = [set(changes) for changes in plan.VARIANTS.values()]
    assert [changed(p) for p in FewShotNotebook().variants()] == [*variants, *inductive]
    of_images = [set(changes) for changes in plan.IMAGE_VARIANTS.values()]
    weak_start = set(plan.IMAGE_VARIANTS[plan.WEAK_START]) | {"K"}
    assert [changed(p) for p in FewShotNotebook().image_variants()] == [*of_images, weak_start]
    assert {len(names - {"features"}) for names in (*variants, *of_images)} == {1}


def test_the_plan_is_the_papers_protocol_but_for_what_its_tables_vary():
    """A new option of an experiment must not let runs with it pass for the paper's own."""
    default = as_dict(FewShot())
    varied = {"dataset", "backbone", "features", "shots", "K", "test_episodes", "seed", "averaged"}
    for origin in plan.ORIGINS:
        planned = plan.plan(*origin)
        for group, more in ((planned.sib, set()), (planned.inductive, {"transductive"})):
            for (shots, K), settings in group.items():
                for p in settings:
                    assert {name for name, value in as_dict(p).items() if value != default[name]} <= varied | more
                    assert (p.dataset, p.backbone, p.shots, p.K) == (*origin, shots, K)
                    assert p.averaged == (origin in [("mini-imagenet", "conv4-64"), ("mini-imagenet", "conv4-128")])
                    assert p.transductive == (group is planned.sib)
                    assert p.test_episodes == {"cifar-fs": 5000, "mini-imagenet": 2000}[p.dataset]
        assert {key: [p.seed for p in settings] for key, settings in planned.sib.items()} == {
            (shots, K): [0, 1, 2] for shots in plan.SHOTS for K in plan.STEPS
        }
        assert set(planned.rivals) == {(name, shots) for name in BASELINES for shots in (1, 5)}


def test_rivals_are_planned_on_the_tasks_of_sib(home):
    planned = plan.plan("cifar-fs", "conv4-64")
    for (name, shots), p in planned.rivals.items():
        (first, *_) = planned.sib[shots, 3]
        common = set(as_dict(p)) & set(as_dict(first))
        assert {key: getattr(p, key) for key in common} == {key: getattr(first, key) for key in common}
        assert p.method == name


def test_all_that_is_read_is_declared():
    declared = plan.declared()
    for origin in plan.ORIGINS:
        planned = plan.plan(*origin)
        groups = (planned.sib, planned.inductive, planned.variants)
        assert {p for group in groups for settings in group.values() for p in settings} <= set(declared[FEW_SHOT])
        assert set(planned.rivals.values()) <= set(declared[RIVAL])
        assert set(planned.unbalanced.values()) <= set(declared[UNBALANCED])
    assert all(len(set(settings)) == len(settings) for settings in declared.values())


def test_the_study_of_cifar_fs_under_conv_4_64_is_published_in_full():
    planned, results = plan.plan("cifar-fs", "conv4-64"), plan.published("cifar-fs", "conv4-64")
    assert ids(results) == {
        **{
            name: {key: [FEW_SHOT.id(p) for p in settings] for key, settings in getattr(planned, name).items()}
            for name in ("sib", "inductive", "variants")
        },
        "rivals": {key: RIVAL.id(p) for key, p in planned.rivals.items()},
        "unbalanced": {
            FEW_SHOT.id(p): UNBALANCED.id(p) for p in planned.unbalanced.values() if p.features == "shipped"
        },
    }
    for experiment in (COMPRESSION, JPEG):
        assert [r.id for r in plan.compressed(experiment)] == [experiment.id(p) for p in plan.declared()[experiment]]


def test_exactly_the_planned_runs_are_taken_seed_by_seed(home):
    seeds = [sib(60 + seed, seed=seed) for seed in (2, 0, 1)]
    other, letter = sib(64, normalise="none"), sib(58, fidelity="paper")
    weak = sib(50, epochs=5, features="images", K=0)
    inductive, five = sib(59, transductive=False), sib(80, shots=5, K=1)
    tried = unbalanced(seeds[1])
    ridge = rival(61, method="ridge")
    published(*seeds, other, letter, weak, inductive, five, tried, ridge)
    results = plan.published("cifar-fs", "conv4-64")
    assert ids(results) == {
        "sib": {(1, 3): [seeds[1].id, seeds[2].id, seeds[0].id], (5, 1): [five.id]},
        "inductive": {(1, 3): [inductive.id]},
        "variants": {
            ("no statistics", 3): [other.id],
            ("the paper to the letter", 3): [letter.id],
            ("5 epochs of pretraining", 0): [weak.id],
        },
        "rivals": {("ridge", 1): ridge.id},
        "unbalanced": {seeds[1].id: tried.id},
    }
    assert [r.id for r in results.records] == [seeds[1].id, seeds[2].id, seeds[0].id, five.id]
    assert not any(ids(plan.published("cifar-fs", "conv4-128")).values())


STRAYS = {
    "another eta": {"eta": 1e-2},
    "a fourth seed": {"seed": 3},
    "another batch size": {"batch": 4},
    "another number of queries": {"queries": 30},
    "fewer ways": {"ways": 3},
    "a longer training": {"steps": 80_000},
    "a quick training": {"steps": QUICK.steps, "test_episodes": QUICK.test_episodes},
    "more test tasks": {"test_episodes": 10_000},
    "another outer rate": {"lr": 1e-2},
    "features of images": {"features": "images"},
    "another number of steps": {"K": 2},
    "two things changed": {"normalise": "none", "alpha": 2.0},
    "a variant on five shots": {"normalise": "none", "shots": 5},
    "a second seed of a variant": {"normalise": "none", "seed": 1},
    "inductive, with another K": {"transductive": False, "K": 5},
}


@pytest.fixture
def planned_only(home) -> list[Record]:
    """Published: a few runs, all of them planned."""
    first, second = sib(70), sib(71, seed=1)
    made = [first, second, sib(60, K=0), sib(64, normalise="none"), sib(59, transductive=False)]
    made += [unbalanced(first), rival(61, method="ridge")]
    published(*made)
    return made


@pytest.mark.parametrize("change", STRAYS.values(), ids=STRAYS)
def test_a_published_run_that_is_not_planned_changes_nothing(planned_only, change):
    before = ids(plan.published())
    stray = sib(99, FULL, **change)
    published(stray, unbalanced(stray))
    assert ids(plan.published()) == before


@pytest.mark.parametrize("change", [{"test_episodes": 300}, {"test_episodes": 9000}, {"val_episodes": 500}])
def test_a_rival_on_other_tasks_is_not_taken(planned_only, change):
    before = ids(plan.published())
    published(rival(99, method="ridge", **change), rival(99, method="pt-map", **change))
    assert ids(plan.published()) == before


def test_runs_of_this_machine_change_nothing(planned_only):
    before = plan.published()
    computed_here(sib(99), sib(99, seed=2), sib(99, shots=5), rival(99, method="ridge"), rival(99, method="pt-map"))
    after = plan.published()
    assert ids(after) == ids(before)
    assert after.sib[1, 3][0].metrics == planned_only[0].metrics
    assert after.rivals["ridge", 1].metrics == planned_only[-1].metrics


def test_compression_and_jpeg_are_of_planned_runs_too(home):
    published(record(COMPRESSION, FULL, {"difference": 0.01}), record(JPEG, FULL, {"original": 70.0}))
    for change in ({"seed": 1}, {"K": 1}, {"steps": 100}):
        p = dataclasses.replace(FULL, **change)
        published(record(COMPRESSION, p, {"difference": 9.0}), record(JPEG, p, {"original": 9.0}))
    published(record(JPEG, dataclasses.replace(FULL, shots=5), {"original": 9.0}))
    assert [r.metrics for r in plan.compressed(COMPRESSION)] == [{"difference": 0.01}]
    assert [r.metrics for r in plan.compressed(JPEG)] == [{"original": 70.0}]


def test_pretrainings_that_are_published_have_their_networks():
    found = PRETRAIN.facts(plan.PRETRAININGS)
    assert len(found) >= 3
    assert all(r.files.path("backbone.safetensors").is_file() for r in found)


def test_gain_is_paired_and_score_has_all_seeds():
    before, after = [sib(60, K=0, seed=s) for s in (0, 1)], [sib(70, K=3, seed=s) for s in (0, 1)]
    differences = [after[s].arrays["best/1shot"].astype(float) - before[s].arrays["best/1shot"] for s in (0, 1)]
    assert gain(before, after).mean == pytest.approx(100 * np.mean(differences) / 75)
    spread = np.mean(differences, 0).var() / 50 + np.mean(differences, 1).var(ddof=1) / 2
    assert gain(before, after).ci95 == pytest.approx(100 / 75 * 1.96 * spread**0.5)
    more = [after[s].arrays["best/5shot"].astype(float) - before[s].arrays["best/5shot"] for s in (0, 1)]
    assert gain(before, after, shots=5).mean == pytest.approx(100 * np.mean(more) / 75)
    assert sib_score(after).mean == pytest.approx(np.mean([r.metrics["best/1shot"] for r in after]))
    assert sib_score(after, shots=5).mean == pytest.approx(np.mean([r.metrics["best/5shot"] for r in after]))
