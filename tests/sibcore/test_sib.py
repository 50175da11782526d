import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal, kl_divergence
from torch.nn import functional as F

from sibcore import reference
from sibcore.sib import SIB
from sibcore.xi import MLPXi

DOUBLE = torch.float64


def random_tasks(tasks=3, ways=4, shots=2, queries=3, dim=6, seed=0, dtype=DOUBLE):
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(ways).repeat(shots).expand(tasks, -1)
    support = torch.randn(tasks, ways * shots, dim, generator=g, dtype=dtype)
    return support, labels, torch.randn(tasks, ways * queries, dim, generator=g, dtype=dtype)


def random_sib(*arguments, dtype=DOUBLE, seed=1, **options) -> SIB:
    """Every parameter away from its initial value, so that none can be left out unnoticed."""
    model = SIB(*arguments, **options).to(dtype)
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=g, dtype=dtype)
    return model


def released_xi(xi: MLPXi) -> nn.Sequential:
    """xi as the release builds it, from torch's own layers in training mode, with the same parameters."""
    hidden, ways = xi.layers[0].weight.shape
    net = nn.Sequential(
        nn.Linear(ways, hidden),
        nn.ReLU(),
        nn.BatchNorm1d(hidden),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.BatchNorm1d(hidden),
        nn.Linear(hidden, ways),
    ).to(xi.layers[0].weight)
    for place, layer in zip((0, 3, 6), xi.layers, strict=True):
        net[place].load_state_dict(layer.state_dict())
    for place, gain, shift in zip((2, 5), xi.gains, xi.shifts, strict=True):
        net[place].load_state_dict({"weight": gain, "bias": shift}, strict=False)
    return net


VARIANTS = {
    "release": {},
    "mean": {"reduction": "mean"},
    "paper": {"fidelity": "paper", "sigma": 0.1},
    "paper with norm": {"fidelity": "paper", "sigma": 0.1, "normalise": "task", "kl_weight": 0.5},
    "inductive": {"transductive": False},
    "inductive mean": {"transductive": False, "reduction": "mean"},
}


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_gradcheck_of_the_logits_in_every_parameter(options):
    support, labels, query = random_tasks(tasks=2, ways=2, shots=1, queries=2, dim=3)
    model = random_sib(2, 3, 2, 0.05, **options)
    noise = model.noise(2, torch.Generator().manual_seed(5))
    support, query = F.normalize(support, dim=-1), F.normalize(query, dim=-1)
    names = [name for name, _ in model.named_parameters()]

    class Logits(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self):
            theta = model.infer(support, labels, query, noise)[-1]
            return model.classify(query, model.sample(theta, noise, -1))

    def logits(*values):
        changed = {f"model.{name}": value for name, value in zip(names, values, strict=True)}
        return torch.func.functional_call(Logits(), changed, ())

    assert torch.autograd.gradcheck(logits, tuple(model.parameters()), fast_mode=True)


def test_xi_is_the_released_network_on_a_single_task():
    xi = random_sib(5, 8).xi
    z = 10 * torch.randn(1, 75, 5, dtype=DOUBLE, generator=torch.Generator().manual_seed(2))
    assert torch.allclose(xi(z)[0], released_xi(xi)(z[0]), atol=1e-12)
    assert torch.allclose(reference.synthesise(xi, z[0]), released_xi(xi)(z[0]), atol=1e-12)


def test_logits_start_as_cosines_to_the_mean_of_unit_support_features():
    support, labels, query = random_tasks(ways=3, shots=5)
    model = SIB(3, 6, steps=0).to(DOUBLE)
    prototypes = torch.stack([F.normalize(support, dim=-1)[:, labels[0] == j].mean(1) for j in range(3)], 1)
    expected = 10 * F.cosine_similarity(query[:, :, None], prototypes[:, None], dim=-1)
    assert torch.allclose(model(support, labels, query), expected)


def test_a_tasks_logits_are_the_same_alone_and_among_512():
    tasks = random_tasks(tasks=512, ways=5, shots=1, queries=15, dim=32)
    model = random_sib(5, 32, 3, 0.01)
    together = model(*tasks)
    for i in (0, 100, 511):
        assert (model(*(part[i : i + 1] for part in tasks)) - together[i]).abs().max() < 1e-10


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_permuting_queries_permutes_logits(options):
    support, labels, query = random_tasks()
    model = random_sib(4, 6, 3, 0.05, **options)
    order = torch.randperm(query.shape[1], generator=torch.Generator().manual_seed(3))
    assert torch.allclose(model(support, labels, query[:, order]), model(support, labels, query)[:, order], atol=1e-10)


def test_permuting_classes_permutes_logits_only_without_synthetic_gradients():
    support, labels, query = random_tasks()
    new = torch.tensor([2, 0, 3, 1])  # class j is now called new[j]

    def difference(**options):
        model = random_sib(4, 6, eta=0.05, **options)
        return (model(support, new[labels], query)[..., new] - model(support, labels, query)).abs().max()

    assert difference(steps=0) < 1e-10
    assert difference(steps=3, transductive=False) < 1e-10
    assert difference(steps=1) > 1e-4


def test_the_trajectory_starts_at_lambda_and_ends_where_the_logits_are_read_off():
    tasks = random_tasks()
    model = random_sib(4, 6, 3, 0.05)
    trajectory = model.trajectory(*tasks)
    assert trajectory.shape == (4, 3, 4, 6)
    assert torch.equal(model.classify(F.normalize(tasks[2], dim=-1), trajectory[-1]), model(*tasks))
    shorter = random_sib(4, 6, 1, 0.05)
    assert torch.equal(shorter.trajectory(*tasks), trajectory[:2])


def test_kl_is_that_of_torch_distributions():
    model = random_sib(4, 6, fidelity="paper", sigma=0.2)
    theta = torch.randn(3, 4, 6, dtype=DOUBLE, generator=torch.Generator().manual_seed(4))
    q = Independent(Normal(theta, torch.full_like(theta, 0.2)), 2)
    p = Independent(Normal(model.psi_mean.expand_as(theta), model.psi_log_std.exp().expand_as(theta)), 2)
    assert torch.allclose(model.kl(theta), kl_divergence(q, p), rtol=1e-12)


def test_noise_comes_from_the_generator_and_is_left_out_without_one():
    tasks = random_tasks()
    model = random_sib(4, 6, fidelity="paper", sigma=0.3)
    noisy = [model(*tasks, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert torch.equal(noisy[0], noisy[1])
    assert not torch.allclose(noisy[0], noisy[2])
    assert torch.equal(model(*tasks), model(*tasks))


def test_fidelity_sets_the_documented_differences_and_an_option_overrides_it():
    paper, release = SIB(5, 8, fidelity="paper"), SIB(5, 8, fidelity="release")
    assert (paper.reduction, paper.kl_weight, paper.xi.normalise, paper.sigma > 0) == ("mean", 1.0, "none", True)
    assert (release.reduction, release.kl_weight, release.xi.normalise, release.sigma) == ("sum", 0.0, "task", 0.0)
    assert SIB(5, 8, fidelity="paper", reduction="sum").reduction == "sum"
    assert {name for name, _ in release.named_parameters() if not name.startswith("xi.")} == {
        "scale",
        "bias",
        "prototype_weight",
    }


def test_the_first_weights_depend_on_the_seed_and_not_on_the_global_generator():
    state = torch.random.get_rng_state()
    first, again, other = (SIB(5, 8, seed=seed).xi.layers[1].weight for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_stacked_parameters_run_as_one_model():
    support, labels, query = random_tasks()
    models = [random_sib(4, 6, 2, 0.05, seed=seed) for seed in (1, 2, 3)]
    parameters, buffers = torch.func.stack_module_state(models)

    class Infer(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = models[0]

        def forward(self):
            return self.model.infer(F.normalize(support, dim=-1), labels, F.normalize(query, dim=-1))[-1]

    def run(values):
        return torch.func.functional_call(Infer(), {f"model.{name}": value for name, value in values.items()}, ())

    assert not buffers
    together = torch.func.vmap(run)(parameters)
    apart = torch.stack([model.trajectory(support, labels, query)[-1] for model in models])
    assert torch.allclose(together, apart, atol=1e-12)


def test_autocast_stays_close_and_keeps_gradients_finite():
    tasks = random_tasks(ways=5, shots=1, queries=15, dim=64, dtype=torch.float32)
    model = SIB(5, 64)
    exact = model(*tasks)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(*tasks)
    assert (rough.float() - exact).abs().max() < 0.2  # logits of up to 10 with 8 bits of mantissa
    rough.float().square().mean().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.thorough
def test_it_traces_as_one_graph_with_the_same_result():
    tasks = random_tasks()
    model = random_sib(4, 6, 2, 0.05)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(*tasks), model(*tasks), atol=1e-10)
    torch.compiler.reset()


def bad(change):
    tasks = dict(zip(("support", "support_labels", "query"), random_tasks(), strict=True))
    return tasks | {name: edit(tasks[name].clone()) for name, edit in change.items()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": lambda q: q[0]}, r"expected support \[B, m, d\].*got \[3, 8, 6\], \[3, 8\] and \[12, 6\]"),
        ({"query": lambda q: q[:2]}, "expected support"),
        ({"support_labels": lambda y: y[:, :-1]}, "expected support"),
        ({"query": lambda q: q[..., :5]}, "features of size d = 6"),
        ({"support_labels": lambda y: y + 1}, r"must lie in 0\.\.3 for 4 ways, got 1\.\.4"),
        ({"support_labels": lambda y: y.double()}, "whole numbers"),
        ({"support_labels": lambda y: y.clamp_max(2)}, "task 0 has no support example of class 3"),
        ({"query": lambda q: q[:, :1]}, "at least 2"),
        ({"query": lambda q: q.index_fill(1, torch.tensor([7]), torch.nan)}, "query features of task 0, example 7"),
        ({"support": lambda s: s.index_fill(1, torch.tensor([2]), torch.inf)}, "support features of task 0, example 2"),
    ],
)
def test_a_bad_batch_is_refused_with_the_reason(change, message):
    with pytest.raises(ValueError, match=message):
        SIB(4, 6).to(DOUBLE)(**bad(change))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ways": 1}, "ways = 1: expected at least 2"),
        ({"steps": -1}, "steps = -1"),
        ({"eta": 0.0}, "eta = 0.0"),
        ({"reduction": "max"}, "reduction = 'max'"),
        ({"fidelity": "arxiv"}, "expected one of 'paper', 'release'"),
        ({"kl_weight": 1.0}, "infinite for a Dirac"),
    ],
)
def test_an_impossible_model_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SIB(**{"ways": 5, "dim": 8} | options)
