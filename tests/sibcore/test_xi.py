from itertools import chain

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sibcore import xi
from sibcore.sib import SIB
from sibcore.transduce import resized
from sibcore.xi import XIS, EquivariantXi, MLPXi, SetXi

PAIRS = [(i, j) for i in range(6) for j in range(4)]  # of 6 queries and 4 classes


def random_logits(*shape: int, seed: int = 0) -> torch.Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def textbook_xi(xi: MLPXi) -> nn.Sequential:
    """torch's own layers with the parameters of `xi`."""
    hidden, ways = xi.layers[0].weight.shape
    net = nn.Sequential(
        *(nn.Linear(ways, hidden), nn.ReLU(), nn.BatchNorm1d(hidden)),
        *(nn.Linear(hidden, hidden), nn.ReLU(), nn.BatchNorm1d(hidden)),
        nn.Linear(hidden, ways),
    ).double()
    for place, layer in zip((0, 3, 6), xi.layers, strict=True):
        net[place].load_state_dict(layer.state_dict())
    return net


def test_running_statistics_are_those_of_torchs_batch_normalisation_in_training_and_afterwards():
    xi = MLPXi(5, "running").double()
    theirs = textbook_xi(xi)
    for seed in range(4):  # several batches, so that the running averages matter
        logits = random_logits(3, 7, 5, seed=seed)
        assert torch.allclose(xi(logits).flatten(0, 1), theirs(logits.flatten(0, 1)), atol=1e-12)
    xi.eval(), theirs.eval()
    logits = random_logits(2, 6, 5, seed=9)
    assert torch.allclose(xi(logits).flatten(0, 1), theirs(logits.flatten(0, 1)), atol=1e-12)


@pytest.mark.parametrize(("ways", "n"), [(2, 2), (5, 75), (20, 7)])
def test_statistics_of_a_task_are_those_of_torchs_batch_normalisation_with_and_without_gradient(ways, n):
    xi = MLPXi(ways, "task").double()
    for number, parameter in enumerate(chain(xi.gains, xi.shifts)):  # away from 1 and 0
        parameter.data += random_logits(*parameter.shape, seed=number)
    theirs, logits = textbook_xi(xi), random_logits(3, n, ways)
    for place, gain, shift in zip((2, 5), xi.gains, xi.shifts, strict=True):
        theirs[place].weight.data, theirs[place].bias.data = gain.data, shift.data
    expected = torch.stack([theirs(task) for task in logits])
    kept = logits.clone()
    assert torch.allclose(xi(logits), expected, atol=1e-10)
    with torch.no_grad():
        assert torch.allclose(xi(logits), expected, atol=1e-10)
    assert torch.equal(logits, kept), "what xi is given stays as it is"


@pytest.mark.parametrize("ways", [2, 5])
def test_the_fused_norm_of_evaluation_is_the_plain_one_and_can_be_switched_off(ways, monkeypatch):
    net, logits = MLPXi(ways).double(), random_logits(3, 9, ways)
    for number, parameter in enumerate(chain(net.gains, net.shifts)):  # away from 1 and 0
        parameter.data += random_logits(*parameter.shape, seed=number)
    with torch.no_grad():
        fused = net(logits)
        monkeypatch.setattr(xi, "norm_and_affine", None)  # it would fail now
        with pytest.raises(TypeError):
            net(logits)
        monkeypatch.setattr(xi, "FUSED", False)
        plain = net(logits)
    assert torch.allclose(fused, plain, atol=1e-12)
    assert torch.allclose(fused, net(logits), atol=1e-12), "with gradient"


def test_after_training_running_statistics_keep_the_queries_apart():
    xi = MLPXi(5, "running").double()
    xi(random_logits(8, 15, 5))
    xi.eval()
    logits = random_logits(1, 6, 5, seed=1)
    assert torch.allclose(xi(logits)[:, :1], xi(logits[:, :1]))


def test_without_a_norm_it_is_a_plain_mlp_of_each_query():
    xi = MLPXi(4, "none").double()
    logits = random_logits(2, 3, 4)
    expected = xi.layers[2](F.relu(xi.layers[1](F.relu(xi.layers[0](logits)))))
    assert torch.allclose(xi(logits), expected)


@pytest.mark.parametrize("make", [EquivariantXi, SetXi])
@pytest.mark.parametrize("normalise", ["task", "none"])
def test_an_equivariant_xi_follows_permutations_of_classes_and_queries(make, normalise):
    xi, logits = make(5, normalise).double(), random_logits(3, 8, 5)
    classes, queries = torch.tensor([3, 0, 4, 1, 2]), torch.randperm(8, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(xi(logits[..., classes]), xi(logits)[..., classes], atol=1e-12)
    assert torch.allclose(xi(logits[:, queries]), xi(logits)[:, queries], atol=1e-12)


def test_the_equivariant_xi_layer_by_layer():
    """Against loops over tasks, queries and classes."""
    xi, logits = EquivariantXi(4, "task").double(), random_logits(2, 3, 4)
    for task, ours in zip(logits, xi(logits), strict=True):
        h = task.unsqueeze(-1)  # [n, k, 1]
        for number, layer in enumerate(xi.layers):
            if number:
                h = F.relu(h)
                h = (h - h.mean((0, 1))) / (h.var((0, 1), correction=0) + 1e-5).sqrt()
            h = torch.stack([torch.stack([layer(torch.cat([own, row.mean(0)])) for own in row]) for row in h])
        assert torch.allclose(ours, h.squeeze(-1), atol=1e-12)


def test_the_set_aware_xi_layer_by_layer():
    """Against loops over tasks, queries and classes."""
    xi, logits = SetXi(4, "task", width=7).double(), random_logits(2, 6, 4)
    for task, ours in zip(logits, xi(logits), strict=True):
        p = task.softmax(-1)
        seen = [[(task[i, j] - task[i].mean()) / 10, p[i, j], 4 * p[:, j].mean(), p[i].max()] for i, j in PAIRS]
        h = torch.tensor(seen, dtype=torch.float64).view(6, 4, 4)
        for number, layer in enumerate(xi.layers):
            if number:
                h = F.relu(h)
                h = (h - h.mean((0, 1))) / (h.var((0, 1), correction=0) + 1e-5).sqrt()
            rows = [layer(torch.cat([h[i, j], h[i].mean(0), h[:, j].mean(0)])) for i, j in PAIRS]
            h = torch.stack(rows).view(6, 4, -1)
        assert torch.allclose(ours, h.squeeze(-1), atol=1e-12)


def test_a_set_aware_xi_answers_otherwise_where_the_other_queries_are_of_another_class():
    logits = torch.zeros(2, 4, 3)
    logits[0, 1:, 0] = logits[1, 1:, 2] = 5  # the first query is the same
    assert torch.allclose(*EquivariantXi(3, "none")(logits)[:, 0])
    assert not torch.allclose(*SetXi(3, "none")(logits)[:, 0])


@pytest.mark.parametrize("options", [{"xi": "equivariant"}, {"xi": "set", "width": 8}])
def test_an_equivariant_sib_permutes_with_its_classes_and_serves_any_number_of_ways(options):
    five = SIB(5, 6, 3, 0.05, **options).double()
    assert five.any_way
    support, query = random_logits(2, 5, 6), random_logits(2, 10, 6, seed=1)
    labels, order = torch.arange(5).expand(2, -1), torch.tensor([2, 4, 0, 1, 3])
    logits = five(support, labels, query)
    renamed = five(support, order.argsort()[labels], query)
    assert torch.allclose(renamed, logits[..., order], atol=1e-12)
    assert not torch.allclose(logits, SIB(5, 6, 0).double()(support, labels, query))

    eight = SIB(**five.setup | {"ways": 8}).double()
    eight.load_state_dict(five.state_dict())
    more = random_logits(2, 8, 6, seed=2)
    assert eight(more, torch.arange(8).expand(2, -1), query).shape == (2, 10, 8)


def test_a_task_among_others_and_alone_has_the_same_xi():
    logits = random_logits(6, 8, 5)
    for kind in XIS.values():
        xi = kind(5, "task").double()
        assert torch.allclose(xi(logits)[2:3], xi(logits[2:3]), atol=1e-12)


def test_what_is_not_offered_is_refused():
    with pytest.raises(ValueError, match="'task' or not at all"):
        SIB(5, 8, xi="equivariant", normalise="running")
    with pytest.raises(ValueError, match="normalise = True: expected one of 'task', 'running', 'none'"):
        SIB(5, 8, normalise=True)
    with pytest.raises(ValueError, match="width = -1: expected at least 0"):
        SIB(5, 8, width=-1)
    with pytest.raises(ValueError, match="xi = 'mpl': expected one of 'mlp', "):
        SIB(5, 8, xi="mpl")


@pytest.mark.parametrize("ways", [2, 5, 20])
@pytest.mark.parametrize("queries", [5, 75, 300])
def test_a_set_aware_sib_serves_any_number_of_ways_and_queries(ways, queries):
    """Trained for 5 ways and 75 queries; copies of a task's queries are no news to it."""
    model = resized(
        SIB(5, 6, 3, 0.05, reduction="mean", xi="set", width=8).double(), {"ways": 5, "queries": 15}, ways, 6
    )
    support, query = random_logits(2, ways, 6), random_logits(2, queries, 6, seed=1)
    labels = torch.arange(ways).expand(2, -1)
    logits = model(support, labels, query)
    assert logits.isfinite().all()
    assert torch.allclose(model(support, labels, query.repeat(1, 2, 1)), logits.repeat(1, 2, 1), atol=1e-9)
