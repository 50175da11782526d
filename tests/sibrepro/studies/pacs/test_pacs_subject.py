"""The functions that notebook 05 shows take the same steps as `sibcore`, which has them in closed form."""

from __future__ import annotations

import nbformat
import pytest
import torch
from cells import NOTEBOOKS
from torch import nn

from sibcore import SIB, Adapter

WAYS, DIM, IMAGES = 5, 6, 9


@pytest.fixture(scope="module")
def shown():
    """The names that the notebook's first cell of its subject defines."""
    cells = nbformat.read(NOTEBOOKS / "05_pacs_adaptation.ipynb", as_version=4).cells
    names = {}
    exec(next(cell.source for cell in cells if "subject" in cell.metadata.get("tags", [])), names)
    return names


@pytest.fixture
def drawn():
    """lambda, and the features of a minibatch under the four rotations, of unit length."""
    generator = torch.Generator().manual_seed(0)
    lam, rotated = (torch.randn(*shape, DIM, generator=generator) for shape in ((WAYS,), (4, IMAGES)))
    return 1.5 * lam, nn.functional.normalize(rotated, dim=-1)


def test_the_rotation_step(shown, drawn):
    lam, rotated = drawn
    head = shown["RotationHead"](WAYS, DIM)
    for parameter in head.parameters():
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
    adapter = Adapter(nn.Identity(), lam, torch.zeros(DIM), eta=0.7)
    adapter.sib.reduction = "mean"
    adapter.turn_head.load_state_dict(head.state_dict())
    z = torch.arange(4).repeat_interleave(IMAGES)
    expected = adapter.turn_step(lam[None], rotated.flatten(0, 1)[None], z[None], IMAGES)[0]
    found = shown["initialise"](lam, head, rotated, 0.7)
    assert torch.allclose(found, expected, atol=1e-6)
    assert not torch.allclose(found, lam, atol=1e-2)


@pytest.mark.parametrize("xi", ["mlp", "set"])
def test_the_synthetic_steps(shown, drawn, xi):
    lam, rotated = drawn
    sib = SIB(WAYS, DIM, steps=3, eta=0.7, reduction="mean", xi=xi)
    expected = sib.descend(lam.expand(4, -1, -1), rotated)
    found = shown["synthetic_steps"](lam.expand(4, -1, -1), rotated, sib.xi, K=3, eta=0.7)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)
    assert not torch.allclose(found[-1], found[0], atol=1e-2)


def test_a_rotation_head_that_has_learned_nothing_moves_nothing(shown, drawn):
    lam, rotated = drawn
    assert torch.equal(shown["initialise"](lam, shown["RotationHead"](WAYS, DIM), rotated, 1.0), lam)
