import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sibcore.episodes import EpisodeSampler, Tasks, _distinct, _mix, _split


def labels_of(sizes: list[int], seed: int = 0) -> torch.Tensor:
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]


def same(a: Tasks, b: Tasks) -> bool:
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in vars(a))


@settings(max_examples=40)
@given(
    ways=st.integers(1, 6),
    shots=st.integers(1, 5),
    queries=st.integers(1, 5),
    extra=st.lists(st.integers(0, 20), min_size=6, max_size=10),
    alpha=st.sampled_from([None, 0.3, 1.0, 50.0]),
    seed=st.integers(0, 2**63 - 1),
)
def test_a_task_is_made_of_distinct_images_of_distinct_classes(ways, shots, queries, extra, alpha, seed):
    least = shots + queries * (ways if alpha else 1)
    labels = labels_of([least + more for more in extra])
    tasks = EpisodeSampler(labels, ways, shots, queries, seed, alpha=alpha).sample(3, 20)
    assert tasks.support.shape == (20, ways * shots)
    assert tasks.query.shape == (20, ways * queries)
    for support, support_labels, query, query_labels, classes in zip(*vars(tasks).values(), strict=True):
        images = torch.cat([support, query]).tolist()
        assert len(set(images)) == len(images)
        assert len(set(classes.tolist())) == ways
        assert torch.equal(labels[support], classes[support_labels])
        assert torch.equal(labels[query], classes[query_labels])
        assert torch.equal(torch.bincount(support_labels, minlength=ways), torch.full((ways,), shots))
        if alpha is None:
            assert torch.equal(torch.bincount(query_labels, minlength=ways), torch.full((ways,), queries))


@pytest.mark.parametrize("options", [{}, {"alpha": 1.0}, {"alpha": 1.0, "mixed": True}, {"views": 3}])
def test_a_task_depends_on_its_number_and_the_seed_alone(options):
    labels = labels_of([90, 100, 120, 95, 99, 90])
    sampler = EpisodeSampler(labels, 5, 2, 15, seed=7, **options)
    whole = sampler.sample(0, 40)
    parts = [sampler.sample(0, 7), sampler.sample(7, 1), sampler.sample(8, 32)]
    assert same(whole, Tasks(*(torch.cat([getattr(part, name) for part in parts]) for name in vars(whole))))
    batches = list(EpisodeSampler(labels, 5, 2, 15, seed=7, **options).batches(2, 5, batch=8, block=16))
    assert len(batches) == 3
    assert all(same(batch, whole[8 * i : 8 * i + 8]) for i, batch in enumerate(batches, start=2))
    assert not torch.equal(EpisodeSampler(labels, 5, 2, 15, seed=8, **options).sample(0, 40).query, whole.query)


def test_the_first_task_of_a_seed_never_changes():
    """Recorded results rest on these tasks: a new way of drawing them would be a new data set."""
    tasks = EpisodeSampler(torch.arange(10).repeat_interleave(20), 3, 1, 2, seed=0).sample(0, 1)
    assert tasks.classes[0].tolist() == [8, 1, 2]
    assert tasks.support[0].tolist() == [175, 25, 49]
    assert tasks.query[0].tolist() == [167, 170, 21, 39, 50, 58]


def test_the_mixer_is_splitmix64():
    """Reference values of SplitMix64 with state 0: mix(1 * golden), mix(2 * golden), ..."""
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [x % 2**64 for x in _split(torch.tensor(0), 3).tolist()] == expected
    assert int(_mix(torch.tensor(0))) == 0


def test_every_ordered_choice_is_equally_likely():
    """3 of 5 in order: 60 outcomes; chi-squared with 59 degrees of freedom lies below 109 with probability 0.9999."""
    draws = 60_000
    chosen = _distinct(_split(torch.tensor(123), draws), torch.full((draws,), 5), 3)
    counts = torch.bincount((chosen * torch.tensor([25, 5, 1])).sum(1), minlength=125)
    counts = counts[counts > 0].double()
    assert len(counts) == 60
    assert (counts - draws / 60).square().sum() / (draws / 60) < 109


@pytest.mark.thorough
def test_dirichlet_queries_have_the_moments_of_the_dirichlet():
    ways, queries, alpha = 4, 25, 2.0
    sampler = EpisodeSampler(labels_of([120] * 5), ways, 1, queries, seed=1, alpha=alpha)
    query_labels = sampler.sample(0, 4000).query_labels
    share = torch.nn.functional.one_hot(query_labels, ways).double().mean(1)  # [T, k]
    variance = (1 / ways) * (1 - 1 / ways) / (ways * alpha + 1)
    assert torch.allclose(share.mean(0), torch.full((ways,), 1 / ways, dtype=torch.double), atol=0.012)
    assert torch.allclose(share.var(0), torch.full((ways,), variance, dtype=torch.double), rtol=0.12)


def test_views_are_drawn_from_all_copies_of_the_bank():
    labels = labels_of([40] * 6)
    plain, viewed = (EpisodeSampler(labels, 5, 1, 15, seed=3, views=views).sample(0, 500) for views in (1, 4))
    assert torch.equal(viewed.query % len(labels), plain.query)
    share = torch.bincount(viewed.query.flatten() // len(labels)).double() / viewed.query.numel()
    assert share.tolist() == pytest.approx([0.25] * 4, abs=5 * math.sqrt(0.25 * 0.75 / viewed.query.numel()))


def test_a_class_with_too_few_images_is_named():
    labels = labels_of([20, 15, 20])
    with pytest.raises(ValueError, match=r"class 'dog' has 15 images, but a task takes 16"):
        EpisodeSampler(labels, 2, 1, 15, seed=0, class_names=["cat", "dog", "emu"])
    with pytest.raises(ValueError, match="class 0 has 20 images, but a task takes 31"):
        EpisodeSampler(labels_of([20, 40, 40]), 2, 1, 15, seed=0, alpha=1.0)
    with pytest.raises(ValueError, match="5-way tasks need at least 5 classes, but this split has 3"):
        EpisodeSampler(labels, 5, 1, 1, seed=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ways": 0}, "ways = 0"),
        ({"shots": 0}, "shots = 0"),
        ({"seed": -1}, "seed = -1"),
        ({"alpha": 0.0}, "alpha = 0.0"),
        ({"labels": torch.ones(9)}, "expected class indices"),
    ],
)
def test_impossible_settings_are_refused(change, message):
    settings = {"labels": labels_of([5, 5]), "ways": 2, "shots": 1, "queries": 1, "seed": 0}
    with pytest.raises(ValueError, match=message):
        EpisodeSampler(**settings | change)


def test_of_mixed_tasks_every_second_one_is_balanced_and_the_others_are_as_without_mixing():
    labels = labels_of([60] * 6)
    mixed = EpisodeSampler(labels, 3, 1, 10, seed=4, alpha=1.0, mixed=True).sample(0, 8)
    unbalanced = EpisodeSampler(labels, 3, 1, 10, seed=4, alpha=1.0).sample(0, 8)
    counts = torch.stack([row.bincount(minlength=3) for row in mixed.query_labels])
    assert counts[::2].unique().tolist() == [10]
    assert torch.equal(mixed.query[1::2], unbalanced.query[1::2])
    assert not torch.equal(mixed.query[::2], unbalanced.query[::2])
