"""`publish` takes planned runs of this machine, and those alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from killing import killed_at_write
from made_up import record, run

from sibcore.files import write_tensors
from sibrepro.facts import Experiment, local, published
from sibrepro.facts import publish as facts
from sibrepro.run import publish


@dataclasses.dataclass(frozen=True)
class Settings:
    n: int = 1


@pytest.fixture
def experiment(tmp_path, monkeypatch):
    monkeypatch.setenv("SIB_HOME", str(tmp_path / "project"))
    made = Experiment("made_up", Settings, compute, oldest=("n",), checkpoints=("best",))
    monkeypatch.setattr(publish, "planned", lambda: {made: [Settings(1), Settings(2)]})
    monkeypatch.setattr(local.provenance, "git", lambda *arguments: "" if "status" in arguments else "c" * 40)
    return made


def compute(p, folder):
    write_tensors(folder / "best.safetensors", {"w": torch.full((2,), float(p.n))}, {"model": p.n})
    return {"answer": float(p.n)}, {"curve": np.arange(p.n)}


def test_planned_runs_are_published_with_what_they_trained_and_strays_are_not(experiment):
    for n in (2, 3):
        run(experiment, Settings(n), compute, keeps_files=True)
    assert publish.facts() == [experiment.id(Settings(2))]
    assert set(published.find("made_up")) == {experiment.id(Settings(2))}
    fact = experiment.published(Settings(2))
    tensors, about = fact.files.checkpoint("best")
    assert tensors["w"].tolist() == [2.0, 2.0]
    assert about == {"model": 2}
    here = local.read(local.folder_of(fact.id))
    assert fact.files.checkpoint_hash("best") == here.files.checkpoint_hash("best")
    assert publish.facts() == [], "what is published is not published again"


def test_equal_tensors_of_checkpoints_are_stored_once_and_read_as_they_were(experiment):
    def alike(p, folder):
        tensors = {"shared": torch.arange(1000.0), "own": torch.full((2,), float(p.n)), "zero": torch.zeros(1) * -p.n}
        write_tensors(folder / "best.safetensors", tensors, {"model": p.n})
        return {"answer": float(p.n)}, {}

    for n in (1, 2):
        run(experiment, Settings(n), alike, keeps_files=True)
    publish.facts()
    assert published.checkpoints_file("made_up").stat().st_size < 2 * 4000
    for n in (1, 2):
        tensors, about = experiment.published(Settings(n)).files.checkpoint("best")
        assert about == {"model": n}
        assert {name: tensor.tolist() for name, tensor in tensors.items()} == {
            "shared": [float(i) for i in range(1000)],
            "own": [float(n)] * 2,
            "zero": [0.0],
        }
        assert torch.signbit(tensors["zero"]).all()


def test_a_half_written_folder_is_not_published(experiment):
    folder = local.folder_of(experiment.id(Settings(1)))
    folder.mkdir(parents=True)
    (folder / "params.json").write_text("{}")
    assert publish.facts() == []


def test_a_run_of_uncommitted_code_is_refused(experiment, monkeypatch):
    monkeypatch.setattr(local.provenance, "git", lambda *arguments: " M sibcore/sib.py")
    run(experiment, Settings(1), compute, keeps_files=True)
    with pytest.raises(ValueError, match="uncommitted"):
        publish.facts()
    assert published.find("made_up") == {}


def test_a_checkpoint_that_is_not_published_is_an_error_that_says_what_to_do(experiment):
    plain = Experiment("made_up", Settings, None, oldest=("n",))
    facts.add(plain, [record(plain, Settings(1), {"answer": 1.0})])
    with pytest.raises(FileNotFoundError, match="compute the run here"):
        plain.published(Settings(1)).files.checkpoint("best")


def test_a_network_that_is_too_large_is_left_here_and_its_run_is_published(tmp_path, monkeypatch):
    def network_of(p, folder):
        write_tensors(folder / "network.safetensors", {"w": torch.zeros(100 * p.n)}, {})
        return {"answer": float(p.n)}, {}

    monkeypatch.setenv("SIB_HOME", str(tmp_path / "project"))
    monkeypatch.setattr(facts, "LARGEST_NETWORK", 700)
    made = Experiment("made_up", Settings, network_of, oldest=("n",), keeps_files=True, network="network.safetensors")
    facts.add(made, [run(made, Settings(n), network_of, keeps_files=True) for n in (1, 2)])
    assert made.published(Settings(1)).files.path("network.safetensors").stat().st_size < 700
    with pytest.raises(FileNotFoundError, match="compute the run here"):
        made.published(Settings(2)).files.path("network.safetensors")


@pytest.mark.thorough
def test_publishing_a_newer_run_in_the_place_of_an_older_can_be_killed_at_any_write(experiment, tmp_path, monkeypatch):
    older = dataclasses.replace(experiment, name="replaced")
    newer = dataclasses.replace(older, version=2)
    made = {
        e.version: local.read(local.folder_of(run(e, Settings(2), compute, keeps_files=True).id))
        for e in (older, newer)
    }
    made = {version: dataclasses.replace(r, arrays={"curve": np.arange(version)}) for version, r in made.items()}
    number = 0
    while True:
        number += 1
        monkeypatch.setenv("SIB_HOME", str(tmp_path / f"killed {number}"))
        facts.add(older, [made[1]])
        if not killed_at_write(number, lambda: facts.add(newer, [made[2]])):
            break
        assert len(published.find("replaced")) <= 1, "what is there can be read"
        facts.add(newer, [made[2]])
        np.testing.assert_array_equal(newer.published(Settings(2)).arrays["curve"], np.arange(2))
        assert newer.published(Settings(2)).version == 2
    assert number > 6
