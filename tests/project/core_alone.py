"""Do with the core of sibcore what an installation without extras promises.

    python tests/project/core_alone.py [package ...]

The packages named are treated as if they were not installed. `test_packaging.py` runs this with the packages of all
extras; in a fresh environment with torch, numpy, safetensors and tqdm it runs as it is.
"""

from __future__ import annotations

import importlib.abc
import sys
import time

import torch  # before packages are blocked: torch itself uses some of them where it finds them
import torch._dynamo  # which torch.optim imports, and which asks for packages that need not be there


class Blocked(importlib.abc.MetaPathFinder):
    """Refuses to import the given packages."""

    def __init__(self, packages: set[str]) -> None:
        self.packages = packages

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in self.packages:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocked(set(sys.argv[1:])))

import sibcore  # noqa: E402
from sibcore.train import train  # noqa: E402


def load_a_sib_of_the_zoo(generator: torch.Generator) -> None:
    sib = sibcore.load_pretrained("5way-1shot-conv4-64")
    support = torch.randn(1, 5, sib.dim, generator=generator)
    query = torch.randn(1, 75, sib.dim, generator=generator)
    logits = sib(support, torch.arange(5)[None], query)
    assert logits.shape == (1, 75, 5)
    assert logits.isfinite().all()


def classify_features(generator: torch.Generator) -> None:
    centres = 3 * torch.randn(4, 32, generator=generator)
    labels, truth = torch.arange(4).repeat(3), torch.arange(4).repeat(15)
    support = centres[labels] + torch.randn(12, 32, generator=generator)
    queries = centres[truth] + torch.randn(60, 32, generator=generator)
    classifier = sibcore.SIBClassifier().fit(support, labels)
    assert classifier.score(queries, truth) > 0.9
    for mistake in (queries[:, :5], queries[0], queries / 0):
        try:
            classifier.predict(mistake)
        except ValueError:
            continue
        raise AssertionError(f"queries {[*mistake.shape]} were accepted")


def train_a_sib(generator: torch.Generator) -> None:
    bank, labels = torch.randn(200, 16, generator=generator), torch.arange(10).repeat(20)
    model = sibcore.SIB(5, 16)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    sampler = sibcore.EpisodeSampler(labels, 5, 1, 5, seed=0)
    history = train(model, bank, sampler, sibcore.Schedule(steps=20, every=10), report=print)
    assert [row["step"] for row in history] == [10, 20]
    assert any(not torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def ask_for_what_needs_scipy() -> None:
    sampler = sibcore.EpisodeSampler(torch.arange(10).repeat(20), 2, 1, 5, seed=0, alpha=1.0)
    try:
        sampler.sample(0, 1)
    except ModuleNotFoundError as error:
        if "pip install 'sibcore[" in str(error):
            return
        raise
    raise AssertionError("scipy was there")


began = time.perf_counter()
numbers = torch.Generator().manual_seed(0)
load_a_sib_of_the_zoo(numbers)
classify_features(numbers)
train_a_sib(numbers)
ask_for_what_needs_scipy()
print(f"a SIB loaded, features classified, a SIB trained: {time.perf_counter() - began:.1f} s")
