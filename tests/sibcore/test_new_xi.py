"""The recipe "a new ξ": a class and a line in `XIS`, and every path takes it. This one looks at the context, too."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sibcore import reference, xi
from sibcore.episodes import EpisodeSampler
from sibcore.evaluate import evaluate
from sibcore.sib import SIB, unit
from sibcore.stack import Stacked
from sibcore.train import Schedule, load_sib, train
from sibcore.xi import XIS, Context, Norm, Xi
from sibrepro.meta_training.settings import FewShot
from sibrepro.meta_training.training import FEW_SHOT, untrained
from sibrepro.params import ParameterError, check
from sibrepro.studies.equal_footing.experiment import MethodSettings, model_of
from sibrepro.studies.few_shot.plan import FewShotNotebook

WAYS, DIM = 3, 10


class NeighbourXi(Xi):
    """Pull a query towards what its neighbours are thought to be, and towards the labels of similar support images."""

    any_way = True
    needs_context = True

    def __init__(self, ways: int, normalise: Norm = "task", width: int = 0) -> None:
        super().__init__(ways, normalise, width)
        self.sharpness = nn.Parameter(torch.tensor(5.0))
        self.weights = nn.Linear(3, 1)

    def forward(self, logits: Tensor, context: Context) -> Tensor:
        p = logits.softmax(-1)
        near = (self.sharpness * context.queries).softmax(-1) @ p
        known = F.one_hot(context.labels, logits.shape[-1]).to(p)
        labelled = (self.sharpness * context.support).softmax(-1) @ known
        return self.weights(torch.stack([p, near, labelled], -1)).squeeze(-1)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(XIS, "neighbour", NeighbourXi)


def clusters() -> tuple[Tensor, EpisodeSampler]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(8).repeat_interleave(20)
    centres = torch.randn(8, DIM, generator=generator)
    return centres[labels] + torch.randn(160, DIM, generator=generator), EpisodeSampler(labels, WAYS, 2, 4, seed=0)


def grid() -> list[list[SIB]]:
    return [[SIB(WAYS, DIM, K, 0.1, xi="neighbour", seed=s) for K in (2, 1)] for s in range(2)]


def test_single_stacked_and_compiled_answers_are_the_reference():
    bank, sampler = clusters()
    tasks = sampler.sample(0, 3)
    support, query = bank[tasks.support].double(), bank[tasks.query].double()
    models = [[model.double() for model in stream] for stream in grid()]
    shared = unit(support), tasks.support_labels, unit(query)
    stack = Stacked(models)
    torch.compiler.reset()
    traced = torch.compile(stack.answer, backend="eager", fullgraph=True)(*shared)
    for i, model in enumerate(m for stream in models for m in stream):
        for t in range(3):
            _, w = reference.few_shot_steps(model, support[t], tasks.support_labels[t], query[t])
            canon = reference.classify(model, query[t], w)
            for found in (model.answer(*shared), stack.answer(*shared)[i], traced[i]):
                assert torch.allclose(found[t], canon, atol=1e-10)


def test_it_is_trained_alone_and_together_to_the_same_model_and_comes_back_from_its_checkpoint(tmp_path):
    bank, sampler = clusters()
    schedule = Schedule(steps=6, every=3, batch=4, lr=0.05)
    alone, together = grid()[0][0], grid()
    train(alone, bank, sampler, schedule, folder=tmp_path, report=lambda line: None)
    train(together, bank, [sampler, sampler], schedule, report=lambda line: None)
    first = SIB(WAYS, DIM, 2, 0.1, xi="neighbour")
    for name, value in alone.named_parameters():
        assert torch.allclose(value, together[0][0].get_parameter(name), atol=1e-5)
    assert not torch.equal(alone.xi.sharpness, first.xi.sharpness), "it learns"
    loaded, about = load_sib(tmp_path / "last.safetensors")
    assert about["model"]["xi"] == "neighbour"
    tasks = sampler.sample(100, 50)
    assert torch.equal(evaluate(loaded, bank, tasks).accuracies, evaluate(alone, bank, tasks).accuracies)


def test_runs_notebooks_and_their_parameters_know_its_name():
    settings = FewShot(xi="neighbour")
    assert type(untrained(settings, DIM).xi) is NeighbourXi
    assert FEW_SHOT.id(settings) not in {FEW_SHOT.id(FewShot()), FEW_SHOT.id(FewShot(xi="equivariant"))}
    notebook = check(FewShotNotebook, {"xi": "neighbour"})
    assert {p.xi for p in notebook.experiments()} == {"neighbour"}
    assert type(model_of(MethodSettings(method="sib-neighbour"), DIM).xi) is NeighbourXi


def test_a_change_in_the_one_place_reaches_every_path(monkeypatch):
    """ReLU becomes tanh in the paper's ξ: answers alone, stacked and traced change, and so do both trainings."""
    bank, sampler = clusters()
    tasks = sampler.sample(0, 3)
    shared = unit(bank[tasks.support]), tasks.support_labels, unit(bank[tasks.query])

    def paths() -> list[Tensor]:
        models = [[SIB(WAYS, DIM, K, 0.1) for K in (2, 1)]]
        stack = Stacked(models)
        torch.compiler.reset()
        traced = torch.compile(stack.answer, backend="eager", fullgraph=True)(*shared)
        answers = [models[0][0].answer(*shared), stack.answer(*shared)[0], traced[0]]
        schedule = Schedule(steps=2, every=2, batch=4, lr=0.1)
        alone = SIB(WAYS, DIM, 2, 0.1)
        train(alone, bank, sampler, schedule, report=lambda line: None)
        train(models, bank, [sampler], schedule, report=lambda line: None)
        return [*answers, alone.scale.detach(), models[0][0].scale.detach()]

    before = paths()
    monkeypatch.setattr(xi, "F", SimpleNamespace(relu=lambda h, inplace=False: h.tanh(), layer_norm=F.layer_norm))
    after = paths()
    for found in (before, after):
        assert torch.allclose(found[0], found[1], atol=1e-4)
        assert torch.allclose(found[0], found[2], atol=1e-4)
        assert torch.allclose(found[3], found[4], atol=1e-5)
    for path, (old, new) in enumerate(zip(before, after, strict=True)):
        assert not torch.allclose(old, new, atol=1e-6), path


def test_a_name_that_is_none_is_refused_with_those_there_are():
    with pytest.raises(ParameterError, match=r"there is no ξ 'neighbor': expected one of mlp, equivariant, set"):
        check(FewShotNotebook, {"xi": "neighbor"})
