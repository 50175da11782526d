"""What heads learn in place of the network, which the publications train and which is frozen here."""

from __future__ import annotations

from torch import Tensor, nn

from sibcore.sib import unit


class Embedding(nn.Module):
    """x -> x + V relu(U x), scaled to length 1. V = 0 at first: training starts from the frozen features."""

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.U, self.V = nn.Linear(dim, width), silent(nn.Linear(width, dim))

    def forward(self, features: Tensor) -> Tensor:
        """Unit features [..., d] -> [..., d]"""
        return unit(features + self.V(self.U(features).relu()))


def silent(layer: nn.Linear) -> nn.Linear:
    """The layer with all weights 0: whatever it is added to begins as it was."""
    for weights in layer.parameters():
        nn.init.zeros_(weights)
    return layer
