"""What lies around changes nothing that is published: tables, figures, claims and README come out byte for byte."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil

import numpy as np
import pytest
from forgetting import forget
from made_up import as_if_computed

from sibrepro import claims, documents, paths, plots
from sibrepro.facts import local
from sibrepro.meta_training.training import FEW_SHOT
from sibrepro.run import budget
from sibrepro.studies.equal_footing import plan as equal_footing
from sibrepro.studies.equal_footing.experiment import METHOD_COMPARISON
from sibrepro.studies.few_shot import figures
from sibrepro.studies.few_shot import plan as few_shot
from sibrepro.studies.few_shot import tables as few_shot_tables
from sibrepro.studies.few_shot.rivals import RIVAL
from sibrepro.studies.pacs import plan as pacs
from sibrepro.studies.pacs.experiment import ADAPTATION
from sibrepro.studies.query_size import plan as query_size
from sibrepro.study import all_tables, studies

pytestmark = pytest.mark.thorough


def everything() -> dict[str, str]:
    """Hashes of what a reader sees."""
    forget()
    results = few_shot.published()
    plots.style()
    for study in studies().values():
        for name in study.tables:
            study.table(name)
        for name in study.figures:
            study.draw(name)
    plots.save(figures.bars(few_shot_tables.reasons(results), "accuracy"), "03_reasons", *results.records)
    plots.save(figures.methods(few_shot_tables.method_scores(results)), "03_methods", *results.records)
    files = [*paths.tables().iterdir(), *paths.figures().iterdir()]
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    texts = {file.name: documents.updated(file) for file in documents.files()}
    return found | {"claims": claims.markdown()} | texts


def plant(experiment, params, **changes):
    """A finished run of this machine that looks like a published one, with wonderful numbers."""
    stray = dataclasses.replace(params, **changes)
    published = experiment.published(params)
    metrics = {name: 99.0 if isinstance(value, float) else value for name, value in published.metrics.items()}
    arrays = {name: np.full_like(array, 75) for name, array in published.arrays.items()}
    as_if_computed(experiment, stray, (metrics, arrays), published.provenance["data"])


@pytest.fixture
def strays(monkeypatch):
    base = few_shot.protocol("cifar-fs", "conv4-64", K=3)
    plant(FEW_SHOT, base, eta=0.5)  # a sweep point; the largest eta used to win
    plant(FEW_SHOT, base, seed=3)  # a fourth seed used to break the pairing
    plant(FEW_SHOT, base, batch=16)  # batch size was not in the label
    plant(FEW_SHOT, base, queries=20)  # another query size
    plant(FEW_SHOT, base, steps=80_000)  # a longer training used to count as fuller
    plant(FEW_SHOT, base, test_episodes=10_000)
    plant(RIVAL, few_shot.plan("cifar-fs", "conv4-64").rivals["pt-map", 1], test_episodes=9000)
    plant(ADAPTATION, pacs.plan("frozen")["SIB-Rot", 3]["sketch"][0], steps=900)
    plant(METHOD_COMPARISON, equal_footing.plan()["sib-set", "mixture", 1][0], seed=3)
    monkeypatch.setenv("SIB_RECOMPUTE", "1")
    plant(FEW_SHOT, base)  # a published run, computed here with another outcome
    monkeypatch.delenv("SIB_RECOMPUTE")
    half = local.folder_of("few_shot-000000000000")  # half-written
    half.mkdir()
    (half / "params.json").write_text("{")
    other = local.folder_of("few_shot-111111111111")  # a record of another version, and with an unknown field
    shutil.copytree(local.folder_of(FEW_SHOT.id(dataclasses.replace(base, seed=3))), other)
    (other / "provenance.json").write_text(json.dumps({"version": 99, "data": {}}))
    damaged = local.folder_of(FEW_SHOT.id(dataclasses.replace(base, batch=16)))
    (damaged / "metrics.json").write_text('{"best/1shot": 1e9}')
    (damaged.parent / ".ipynb_checkpoints").mkdir()
    (damaged.parent / "dangling").symlink_to("nowhere")


def test_strays_change_nothing_that_is_published(strays, tmp_path, monkeypatch):
    with_strays = everything()
    assert len(list((paths.local() / "runs").iterdir())) > 10
    monkeypatch.setenv("SIB_OUTPUT", str(tmp_path / "empty"))
    assert everything() == with_strays
    assert with_strays["README.md"] == documents.files()[0].read_text(encoding="utf-8")


def test_tables_are_the_committed_ones():
    everything()
    names = [f"{name}.{kind}" for name in all_tables() for kind in ("csv", "md", "tex")]
    for name in names:
        assert (paths.tables() / name).read_bytes() == (paths.published() / "tables" / name).read_bytes()


def test_the_published_results_are_within_their_budget():
    budget.check()


def test_a_budget_that_is_exceeded_names_the_largest_files(monkeypatch):
    monkeypatch.setattr(budget, "LIMIT", 1_000_000)
    with pytest.raises(ValueError, match=r"the limit is 1 MB.*\n +15\.4 MB  results/features/cifar-fs"):
        budget.check()


def test_query_sizes_have_the_planned_seeds_only(strays):
    planned = query_size.plan("cifar-fs")
    for key, records in query_size.published().items():
        assert [record.params["seed"] for record in records] == [p.seed for p in planned[key]][: len(records)]
