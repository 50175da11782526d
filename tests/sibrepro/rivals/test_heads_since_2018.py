"""Independent checks of the heads that came after 2017: closed forms, autograd, brute force."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from few_shot_tasks import tasks

from sibcore.sib import class_means
from sibrepro.rivals import HEADS, NearestCentroid

DIM = 12
NAMES = ("gidaris", "qiao", "leo", "tadam", "ctm", "gnn", "snail")


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def made(name, ways, seed=0, **options):
    return HEADS[name](ways, DIM, seed, **options).double()


def test_dynamic_few_shot_without_attention_is_the_nearest_centroid_by_cosine():
    support, labels, query, _ = tasks(shots=[1, 3, 2, 5])
    head = made("gidaris", 4)
    assert not torch.allclose(head.answer(support, labels, query), nearest_centroid(support, labels, query, "cosine"))
    torch.nn.init.zeros_(head.phi_att)
    torch.testing.assert_close(head.answer(support, labels, query), nearest_centroid(support, labels, query, "cosine"))


def nearest_centroid(support, labels, query, metric):
    return NearestCentroid(4, metric=metric).answer(support, labels, query)


def test_dynamic_few_shot_attends_to_base_classes_by_the_cosine_to_their_keys():
    support, labels, _, _ = tasks(batch=1, shots=[1, 3, 2, 5])
    head = made("gidaris", 4, bases=3)
    for j, got in enumerate(head.weights(support, F.one_hot(labels, 4).mT.double())[0]):
        wanted = torch.zeros(DIM, dtype=torch.float64)
        own = support[0, labels[0] == j]
        for x in own:
            weight = torch.stack([10 * F.cosine_similarity(head.phi_q.T @ x, key, dim=0) for key in head.keys]).exp()
            read = sum(a * w / w.norm() for a, w in zip(weight / weight.sum(), head.base_weights, strict=True))
            wanted = wanted + (x + read) / len(own)
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)  # gamma was made in single precision


@pytest.mark.parametrize("layers", [1, 2])
def test_predicted_parameters_start_as_the_nearest_centroid_by_cosine(layers):
    support, labels, query, _ = tasks(shots=[1, 3, 2, 5])
    got = made("qiao", 4, layers=layers).answer(support, labels, query)
    wanted = nearest_centroid(support, labels, query, "cosine")
    torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)


def test_predicted_parameters_are_a_function_of_the_class_alone():
    """What the weights of a class are does not depend on the other classes of the task."""
    support, labels, query, _ = tasks(ways=4, shots=2)
    head = made("qiao", 4, layers=2)
    for layer in (head.phi[0], head.phi[2]):
        torch.nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(0))
    first = labels[0] < 2
    pair = made("qiao", 2, layers=2)
    pair.load_state_dict(head.state_dict())
    got = pair.answer(support[:, first], labels[:, first], query)
    torch.testing.assert_close(got, head.answer(support, labels, query)[..., :2])


def test_leos_steps_are_those_of_autograd():
    support, labels, query, _ = tasks(shots=[1, 3, 2, 5])
    head = made("leo", 4, code=5, steps=2, weight_steps=3)

    def loss(w):
        return F.cross_entropy(head.classify(support, w).mT, labels, reduction="sum") / labels.shape[1]

    z = head.codes(support, F.one_hot(labels, 4).mT.double()).detach().requires_grad_()
    for _ in range(2):
        z = z - 0.03 * torch.autograd.grad(loss(head.decode(z)), z)[0]
    w = head.decode(z)
    for _ in range(3):
        w = w - 0.3 * torch.autograd.grad(loss(w), w)[0]
    torch.testing.assert_close(head.answer(support, labels, query), head.classify(query, w), rtol=1e-6, atol=1e-6)


def test_leos_codes_are_means_over_pairs():
    support, labels, _, _ = tasks(batch=1, shots=[1, 3, 2, 5])
    head = made("leo", 4, code=5)
    codes, (x, y) = head.codes(support, F.one_hot(labels, 4).mT.double())[0], (head.encode(support)[0], labels[0])
    for j in range(4):
        pairs = [head.relation(torch.cat([a, b])) for a in x[y == j] for b in x]
        torch.testing.assert_close(codes[j], torch.stack(pairs).mean(0))


def test_tadam_without_conditioning_is_a_prototypical_network():
    support, labels, query, _ = tasks(shots=[1, 3, 2, 5])
    head = made("tadam", 4, width=7)
    for number in (head.gamma_0, head.beta_0):
        torch.nn.init.zeros_(number)
    got = head.answer(support, labels, query)
    layers = torch.nn.Sequential(head.W, torch.nn.ReLU(), head.V)
    centres = class_means(support + layers(support), labels, 4)[0]
    wanted = -5 * torch.cdist(query + layers(query), centres).square()
    torch.testing.assert_close(got.log_softmax(-1), wanted.log_softmax(-1), rtol=1e-6, atol=1e-6)


def test_tadam_conditions_on_the_mean_of_the_prototypes():
    head = made("tadam", 4, width=7)
    torch.nn.init.zeros_(head.V.weight)  # prototypes are then class means
    torch.nn.init.zeros_(head.V.bias)
    seen = []
    head.conditions.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    support, labels, query, _ = tasks(shots=[1, 3, 2, 5])
    head.answer(support, labels, query)
    wanted = torch.stack([x[labels[0] == j].mean(0) for x in support for j in range(4)]).view(3, 4, DIM).mean(1)
    torch.testing.assert_close(seen[0].squeeze(1), wanted)


def test_ctm_with_the_same_mask_everywhere_is_nearest_centroid():
    support, labels, query, _ = tasks(shots=[1, 3, 2, 5])
    head = made("ctm", 4, width=7)
    torch.testing.assert_close(
        head.mask(support, F.one_hot(labels, 4).mT.double()).mean(-1), torch.ones(3, 1, dtype=torch.float64)
    )
    wanted = nearest_centroid(support, labels, query, "euclidean")
    assert not torch.allclose(head.answer(support, labels, query), wanted)
    for p in head.project.parameters():
        torch.nn.init.zeros_(p)
    torch.testing.assert_close(head.answer(support, labels, query), wanted, rtol=1e-6, atol=1e-6)


def test_a_mask_of_ctm_that_drops_dimensions_is_nearest_centroid_in_the_others():
    support, labels, query, _ = tasks()
    head = made("ctm", 4, width=7)
    torch.nn.init.zeros_(head.project.weight)
    with torch.no_grad():
        head.project.bias.copy_(torch.where(torch.arange(DIM) < 3, 0.0, -1000.0))
    wanted = nearest_centroid(4 * support[..., :3], labels, 4 * query[..., :3], "euclidean")  # the mask's mean is 1
    torch.testing.assert_close(head.answer(support, labels, query), wanted, rtol=1e-6, atol=1e-6)


def test_the_graph_network_is_that_of_each_querys_own_graph():
    """Brute force: all nodes and edges of the graph of one query, layer by layer."""
    support, labels, query, _ = tasks(batch=2, shots=[1, 3, 2, 5], queries=2)
    head = made("gnn", 4, width=6)
    got = head.answer(support, labels, query)
    for b, q in [(0, 0), (1, 5)]:
        x = head.embed(torch.cat([support[b], query[b, [q]]]))
        y = torch.cat([F.one_hot(labels[b], 4).double(), torch.full((1, 4), 0.25, dtype=torch.float64)])
        n = len(x)

        def adjacency(edge, x, y, n=n):
            rows = []
            for i in range(n):
                others = [k for k in range(n) if k != i]
                inputs = [torch.cat([(x[i] - x[k]).abs(), (y[i] - y[k]).abs().sum()[None]]) for k in others]
                scores = torch.stack([edge.last(F.leaky_relu(edge.hidden(one))) for one in inputs])
                row = torch.zeros(n, dtype=torch.float64)
                row[others] = scores.squeeze(-1).softmax(0)
                rows.append(row)
            return torch.stack(rows)

        A = adjacency(head.edges[0], x, y)
        x, spread = torch.cat([x, F.leaky_relu(head.U(x) + head.V(A @ x))], -1), A @ y
        last = adjacency(head.edges[1], x, spread)[-1]
        wanted = head.out[0] * spread[-1] + head.out[1] * last @ y + head.out[2] * last @ spread
        torch.testing.assert_close(got[b, q], wanted)


def test_snails_queries_end_a_sequence_of_their_own():
    """A sequence through torch's own causal convolution and masked attention, one query at a time."""
    support, labels, query, _ = tasks(batch=1, ways=3, shots=2, queries=1)
    head = made("snail", 3, width=5, length=8)
    got = head.answer(support, labels, query)[0]
    scale = math.sqrt(DIM)
    for q in range(query.shape[1]):
        h = torch.cat([scale * support[0], F.one_hot(labels[0], 3).double()], -1)
        h = torch.cat([h, F.pad(scale * query[0, [q]], (0, 3))])
        for block in head.blocks:
            if hasattr(block, "key"):
                scores = block.asked(h) @ block.key(h).T / math.sqrt(DIM)
                scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf)
                scores[-1, -1] = -math.inf  # a query carries itself along and does not read itself
                news = scores.softmax(-1) @ block.value(h)
            else:
                kernel = torch.stack([block.earlier.weight, block.now.weight], -1)
                padded = F.pad(h.T[None], (block.delay, 0))
                f, g = F.conv1d(padded, kernel, block.now.bias, dilation=block.delay)[0].T.chunk(2, -1)
                news = f.tanh() * g.sigmoid()
            h = torch.cat([h, news], -1)
        torch.testing.assert_close(got[q], head.out(h[-1]))
    assert [block.delay for block in head.blocks[1:-1]] == [1, 2, 4]


def test_heads_start_where_features_already_answer(name):
    support, labels, query, truth = tasks(ways=5, shots=1, queries=15, dim=DIM, spread=0.05)
    right = made(name, 5).answer(support, labels, query).argmax(-1) == truth
    assert right.double().mean() > 0.9
