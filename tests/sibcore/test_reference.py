"""Everything faster does what `sibcore.reference` writes down, and the reference does what its equations say."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sibcore import reference
from sibcore.adapt import Adapter
from sibcore.episodes import EpisodeSampler
from sibcore.group import OneByOne
from sibcore.reference import few_shot_steps, maml_steps, sib_steps
from sibcore.sib import SIB, unit
from sibcore.stack import Stacked
from sibcore.train import Schedule, train
from sibcore.xi import XIS
from sibrepro.studies.spinning_lines import model as toy
from sibrepro.studies.spinning_lines.model import SpinningLines
from sibrepro.theory import bayes

DOUBLE = torch.float64
WAYS, DIM, TASKS = 4, 6, 3

VARIANTS = {
    "release": {},
    "mean": {"reduction": "mean"},
    "no norm": {"normalise": "none"},
    "paper": {"fidelity": "paper", "sigma": 0.1},
    "paper with norm": {"fidelity": "paper", "sigma": 0.1, "normalise": "task", "kl_weight": 0.5},
    "inductive": {"transductive": False},
    "inductive mean": {"transductive": False, "reduction": "mean"},
    "inductive with noise": {"transductive": False, "sigma": 0.1},
}
STACKABLE = {name: options for name, options in VARIANTS.items() if not {"fidelity", "sigma"} & set(options)}


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def varied(model: nn.Module, seed: int = 1) -> nn.Module:
    """Every parameter away from its first value, so that none can be left out unnoticed."""
    model = model.double()
    for i, parameter in enumerate(model.parameters()):
        parameter.data += 0.3 * normal(*parameter.shape, seed=100 * seed + i)
    return model


def tasks(shots: int = 2, queries: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """support [B, m, d], labels [B, m], query [B, n, d], none of length 1."""
    labels = torch.arange(WAYS).repeat(shots).expand(TASKS, -1)
    return normal(*labels.shape, DIM, seed=2), labels, normal(TASKS, WAYS * queries, DIM, seed=3)


def thetas(steps: list[reference.Step]) -> Tensor:
    return torch.stack([step.theta for step in steps])


def same_with_gradients(ours: Tensor, theirs: Tensor, model: nn.Module) -> None:
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert torch.allclose(ours, theirs, atol=1e-10, rtol=1e-10)
    weights = normal(*ours.shape, seed=6)
    mine = torch.autograd.grad((ours * weights).sum(), parameters.values(), allow_unused=True)
    other = torch.autograd.grad((theirs * weights).sum(), parameters.values(), allow_unused=True)
    for name, a, b in zip(parameters, mine, other, strict=True):
        assert (a is None) == (b is None), name
        assert a is None or torch.allclose(a, b, atol=1e-10, rtol=1e-9), name


@pytest.mark.parametrize("shots", [1, 3])
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_the_closed_form_and_its_gradients(options, shots):
    model, (support, labels, query) = varied(SIB(WAYS, DIM, 3, 0.05, **options)), tasks(shots)
    noise = model.noise(TASKS, torch.Generator().manual_seed(5))
    ours = torch.stack(model.infer(unit(support), labels, unit(query), noise), 1)  # [B, K+1, k, d]
    epsilon = [None] * TASKS if noise is None else noise.unbind(1)
    canon = [few_shot_steps(model, *task) for task in zip(support, labels, query, epsilon, strict=True)]
    assert (ours[:, 0] - ours[:, -1]).abs().max() > 1e-3, "the steps do something"
    same_with_gradients(ours, torch.stack([thetas(steps) for steps, _ in canon]), model)
    logits = model(support, labels, query, torch.Generator().manual_seed(5))
    for i, (_, w) in enumerate(canon):
        assert torch.allclose(logits[i], reference.classify(model, query[i], w), atol=1e-10)


@pytest.mark.parametrize("normalise", ["task", "none"])
@pytest.mark.parametrize("xi", XIS)
def test_every_path_with_every_xi_is_the_reference(xi, normalise):
    """A single SIB, a stack, and both as the compiler traces them."""
    grid = [[(1, 0.1), (0, 0.1), (3, 0.05)], [(1, 0.02), (0, 0.1), (3, 0.1)]]
    models = [
        [varied(SIB(WAYS, DIM, K, eta, xi=xi, normalise=normalise), 10 * s + e) for e, (K, eta) in enumerate(stream)]
        for s, stream in enumerate(grid)
    ]
    support, labels, query = tasks(2)
    stack = Stacked(models)
    shared = unit(support), labels, unit(query)
    together = stack.answer(*shared)
    torch.compiler.reset()
    traced = torch.compile(stack.answer, backend="eager", fullgraph=True)(*shared)
    for i, model in enumerate(m for stream in models for m in stream):
        alone = model.answer(*shared)
        compiled = torch.compile(model.answer, backend="eager", fullgraph=True)(*shared)
        for t in range(TASKS):
            _, w = few_shot_steps(model, support[t], labels[t], query[t])
            canon = reference.classify(model, query[t], w)
            for found in (alone, compiled, together[i], traced[i]):
                assert torch.allclose(found[t], canon, atol=1e-10)
    assert (together[0] - models[0][0].changed(steps=0).answer(*shared)).abs().max() > 1e-3, "the steps do something"


@pytest.mark.parametrize("xi", XIS)
def test_the_gradients_with_every_xi_are_those_of_the_reference(xi):
    model, (support, labels, query) = varied(SIB(WAYS, DIM, 3, 0.05, xi=xi)), tasks()
    ours = torch.stack(model.infer(unit(support), labels, unit(query)), 1)
    canon = [few_shot_steps(model, *task)[0] for task in zip(support, labels, query, strict=True)]
    same_with_gradients(ours, torch.stack([thetas(steps) for steps in canon]), model)


@pytest.mark.parametrize("shots", [1, 3])
@pytest.mark.parametrize("options", STACKABLE.values(), ids=STACKABLE)
def test_a_stack_of_models_that_differ_in_steps_and_step_size(options, shots):
    models = [
        varied(SIB(WAYS, DIM, K, eta, **options), e) for e, (K, eta) in enumerate([(1, 0.1), (0, 0.1), (3, 0.05)])
    ]
    support, labels, query = tasks(shots)
    answers = Stacked([models]).answer(unit(support), labels, unit(query))
    for model, answer in zip(models, answers, strict=True):
        for i in range(TASKS):
            _, w = few_shot_steps(model, support[i], labels[i], query[i])
            assert torch.allclose(answer[i], reference.classify(model, query[i], w), atol=1e-10)


def test_spinning_lines():
    p = SpinningLines(tasks=3, seeds=2, n=8)
    weights = {name: value + 0.3 * normal(*value.shape, seed=7) for name, value in toy.init_sib(p).items()}
    x, _ = toy.sample_tasks(p, stream=0)
    ours = torch.stack(toy.trajectory(weights, x, K=3, eta=0.1))  # [K+1, C, tasks]
    for c in range(p.seeds):
        own = {name: value[c : c + 1] for name, value in weights.items()}
        for t in range(p.tasks):
            steps = sib_steps(
                weights["lambda"][c].clone(),
                lambda theta, _, x=x[c, t]: theta * x,
                lambda y_hat, own=own: toy.mlp(own["xi"], y_hat[None])[0],
                0.1,
                3,
                mean=False,  # eq. (toy) prints a plain sum
            )
            assert torch.allclose(ours[:, c, t], thetas(steps), atol=1e-12)
    assert (ours[0] - ours[-1]).abs().max() > 1e-3


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_sib_rot(reduction):
    """Eq. (ssup) is one step of eq. (maml) with rotations for labels; then comes eq. (sib)."""
    n, eta = 5, 0.1
    model = varied(Adapter(nn.Identity(), normal(3, DIM, seed=8).float(), torch.zeros(DIM), 3, eta))
    model.sib.reduction = reduction
    turned = unit(normal(2, 4 * n, DIM, seed=9))
    turns, upright = torch.arange(4).repeat_interleave(n).expand(2, -1), turned[:, :n]
    ours = torch.stack(model.theta(upright, turned, turns), 1)
    canon = []
    for x, all_turns, z in zip(upright, turned, turns, strict=True):

        def z_hat(theta: Tensor, _: int, seen: Tensor = all_turns) -> Tensor:
            return model.turn_head(torch.cat([reference.classify(model.sib, seen, theta), seen], -1))

        def loss(z_hat: Tensor, z: Tensor = z) -> Tensor:
            return F.cross_entropy(z_hat, z) * (1 if reduction == "mean" else n)  # the mean over an image's turns

        start = maml_steps(model.start, z_hat, loss, eta, 1)[-1].theta
        steps = sib_steps(
            start,
            lambda theta, _, x=x: reference.classify(model.sib, x, theta),
            lambda y_hat: reference.synthesise(model.sib.xi, y_hat),
            eta,
            3,
            mean=reduction == "mean",
        )
        canon.append(thetas(steps))
    same_with_gradients(ours, torch.stack(canon), model)


def test_the_theory_s_gradient_with_a_learned_standard_deviation_and_a_mean_over_draws():
    theta, psi = normal(2, WAYS, DIM, seed=10), normal(2, WAYS, DIM, seed=11)
    features, noise = normal(5, DIM, seed=12), (normal(7, WAYS, DIM, seed=15), torch.full((7,), 1 / 7, dtype=DOUBLE))
    matrix = normal(WAYS, WAYS, seed=13)
    ours = bayes.kl_direction(theta, psi, features, lambda y: (y @ matrix).tanh(), noise, "mean")
    steps = sib_steps(
        theta,
        lambda theta, _: features @ (theta[0] + theta[1].exp() * noise[0]).mT,  # [S, n, k]
        lambda y_hat: (y_hat @ matrix).tanh() / len(features),
        1.0,
        1,
        lambda theta: bayes.kl_gaussian(theta[0], theta[1].exp(), psi[0], psi[1].exp()).sum(),
    )
    assert torch.allclose(ours, steps[0].theta - steps[1].theta, atol=1e-10)


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_training_on_one_task_a_step_is_algorithm_1(options):
    labels = torch.arange(6).repeat_interleave(8)
    bank, sampler = normal(len(labels), DIM, seed=14), EpisodeSampler(labels, WAYS, 2, 3, seed=0)
    ours, canon = (varied(SIB(WAYS, DIM, 2, 0.05, **options)) for _ in range(2))
    schedule = Schedule(steps=4, batch=1, lr=0.01, momentum=0, weight_decay=0, seed=3)
    train(ours, bank, sampler, schedule, report=lambda line: None)
    drawn = sampler.sample(0, 4)
    noise = [OneByOne([[canon]]).noise(1, 3, step)[0] for step in range(4)]
    canon_tasks = (
        (bank[drawn.support[i]], drawn.support_labels[i], bank[drawn.query[i]], drawn.query_labels[i], epsilon)
        for i, epsilon in enumerate(None if e is None else e[:, 0] for e in noise)
    )
    reference.algorithm_1(canon, canon_tasks, lr=0.01)
    for (name, mine), theirs in zip(ours.named_parameters(), canon.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-10), name


def test_the_reference_s_step_is_the_printed_sum_over_queries():
    """With an explicit Jacobian for dy^/dw, and finite differences for the gradients of the loss and of the KL."""
    model, (support, labels, query) = varied(SIB(WAYS, DIM, 1, 0.05, fidelity="paper", sigma=0.3)), tasks()
    support, labels, query, n = support[0], labels[0], query[0], query.shape[1]
    steps, _ = few_shot_steps(model, support, labels, query)
    theta, y_hat, xi = (value.detach() for value in steps[0])
    jacobian = torch.autograd.functional.jacobian(lambda w: reference.classify(model, query, w), theta)  # [n, k, k, d]
    summed = sum(xi[i, j] * jacobian[i, j] for i in range(n) for j in range(WAYS))
    expected = theta - 0.05 * (summed / n + slopes(lambda theta: model.kl(theta[None]).sum(), theta))
    assert torch.allclose(steps[1].theta, expected, atol=1e-7)
    assert torch.equal(y_hat, reference.classify(model, query, theta))

    inductive = varied(SIB(WAYS, DIM, 1, 0.05, transductive=False))
    steps, _ = few_shot_steps(inductive, support, labels, query)
    theta = steps[0].theta.detach()

    def loss(theta: Tensor) -> Tensor:
        return F.cross_entropy(reference.classify(inductive, support, theta), labels, reduction="sum")

    assert torch.allclose(steps[1].theta, theta - 0.05 * slopes(loss, theta), atol=1e-7)
    expected = reference.classify(inductive, support, theta).softmax(-1) - F.one_hot(labels)
    assert torch.allclose(steps[0].dl_dy, expected)


def slopes(function, at: Tensor, h: float = 1e-5) -> Tensor:
    """Central differences."""
    found = torch.zeros_like(at)
    for i in range(at.numel()):
        move = torch.zeros_like(at)
        move.view(-1)[i] = h
        found.view(-1)[i] = (function(at + move) - function(at - move)).detach() / (2 * h)
    return found


def test_steps_without_grad_and_the_last_one_are_there_to_be_shown():
    model, (support, labels, query) = varied(SIB(WAYS, DIM, 3, 0.05)), tasks()
    with torch.no_grad():
        steps, w = few_shot_steps(model, support[0], labels[0], query[0])
    assert len(steps) == 4
    assert {(*step.y_hat.shape, *step.dl_dy.shape) for step in steps} == {(12, WAYS, 12, WAYS)}
    assert torch.equal(steps[-1].theta, w)
    assert torch.allclose(steps[-1].y_hat, model(support, labels, query)[0])
