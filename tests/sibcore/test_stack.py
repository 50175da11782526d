import pytest
import torch
from torch.nn import functional as F

from sibcore.sib import SIB, unit
from sibcore.stack import Stacked

DOUBLE = torch.float64
WAYS, DIM, STREAMS, TASKS = 3, 7, 2, 4


def varied(steps, eta, seed, **options) -> SIB:
    """Every parameter away from its initial value, so that none can be left out unnoticed."""
    model = SIB(WAYS, DIM, steps, eta, seed=seed, **options).to(DOUBLE)
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=g, dtype=DOUBLE)
    return model


def grid(steps=(1, 0, 3), etas=(0.2, 0.1, 0.05), **options) -> list[list[SIB]]:
    columns = list(zip(steps, etas, strict=True))
    return [[varied(*columns[e], 10 * s + e, **options) for e in range(len(columns))] for s in range(STREAMS)]


def tasks(shots=2, queries=4, seed=0):
    """Unit features and labels of other tasks for each stream."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(WAYS).repeat(shots).expand(STREAMS, TASKS, -1)
    query_labels = torch.randint(WAYS, (STREAMS, TASKS, WAYS * queries), generator=g)
    support = torch.randn(*labels.shape, DIM, generator=g, dtype=DOUBLE)
    query = torch.randn(*query_labels.shape, DIM, generator=g, dtype=DOUBLE)
    return unit(support), labels, unit(query), query_labels


OPTIONS = [
    {},
    {"reduction": "mean"},
    {"normalise": "none"},
    {"transductive": False},
    {"transductive": False, "reduction": "mean"},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("shots", [1, 5])
def test_logits_and_gradients_are_those_of_each_model_alone(options, shots):
    models = grid(**options)
    stack = Stacked(models)
    support, labels, query, query_labels = tasks(shots)
    logits = stack.logits(support, labels, query)  # [E, S, k, B, n]
    losses, accuracies = stack(support, labels, query, query_labels)  # [M]
    losses.sum().backward()
    gradients = {name: parameter.grad for name, parameter in stack.named_parameters()}
    for s in range(STREAMS):
        for e, model in enumerate(models[s]):
            expected = model.answer(support[s], labels[s], query[s])  # [B, n, k]
            i = s * len(models[s]) + e
            assert torch.allclose(logits[stack.order.index(e), s].permute(1, 2, 0), expected, atol=1e-11)
            loss = F.cross_entropy(expected.flatten(0, 1), query_labels[s].flatten())
            assert torch.allclose(losses[i], loss, atol=1e-12)
            assert accuracies[i].item() == pytest.approx(
                (expected.argmax(-1) == query_labels[s]).double().mean().item()
            )
            loss.backward()
            mine = stack.of_model(i, gradients)
            for name, parameter in model.named_parameters():
                if parameter.grad is None:
                    assert model.steps == 0
                    assert name not in mine
                else:
                    assert torch.allclose(mine[name], parameter.grad, atol=1e-10), (s, e, name)


def test_unstacking_gives_the_models_back_each_with_its_own_parameters():
    models, before = grid(), grid()
    stack = Stacked(models)
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter += 1
    stack.write_back()
    for stream, old_stream in zip(models, before, strict=True):
        for model, old in zip(stream, old_stream, strict=True):
            for (name, now), then in zip(model.named_parameters(), old.parameters(), strict=True):
                untouched = model.steps == 0 and name.startswith("xi.")
                assert torch.equal(now, then if untouched else then + 1), name


@pytest.mark.parametrize("transductive", [True, False])
def test_a_support_example_whose_features_are_all_zero_answers_as_sib_does(transductive):
    models = grid(transductive=transductive)
    support, labels, query, query_labels = tasks(shots=1)
    support[:, 0, 0] = 0
    stack = Stacked(models)
    logits = stack.logits(support, labels, query)
    stack(support, labels, query, query_labels)[0].sum().backward()
    assert all(p.grad.isfinite().all() for p in stack.parameters())
    for s in range(STREAMS):
        for e, model in enumerate(models[s]):
            expected = model.answer(support[s], labels[s], query[s])
            assert torch.allclose(logits[stack.order.index(e), s].permute(1, 2, 0), expected, atol=1e-9)


def test_models_that_do_not_fit_together_are_refused():
    fits = SIB(3, 8, 2, 0.1)
    for other, message in (
        (SIB(4, 8, 2, 0.1), "model 1 of stream 0 has ways = 4, but the first model has 3"),
        (SIB(3, 9, 2, 0.1), "has dim = 9"),
        (SIB(3, 8, 2, 0.1, reduction="mean"), "has reduction = mean"),
        (SIB(3, 8, 2, 0.1, normalise="none"), "has normalise = none"),
        (SIB(3, 8, 2, 0.1, transductive=False), "has transductive = False"),
        (SIB(3, 8, 2, 0.1, fidelity="paper"), "neither KL nor noise"),
        (SIB(3, 8, 2, 0.1).double(), "is torch.float64 on cpu, unlike the first model"),
    ):
        with pytest.raises(ValueError, match=message):
            Stacked([[fits, other]])
    with pytest.raises(ValueError, match="model 0 of stream 1 has steps = 3, but model 0 of stream 0 has 2"):
        Stacked([[fits], [SIB(3, 8, 3, 0.1)]])
    with pytest.raises(ValueError, match=r"equally many models, at least one, got \[1, 2\]"):
        Stacked([[fits], [fits, fits]])
    with pytest.raises(ValueError, match="equally many models, at least one"):
        Stacked([[]])
