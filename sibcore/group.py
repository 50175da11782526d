"""Models that are trained together, S streams of tasks times E models per stream, behind one interface.

`Stacked` does it for SIBs in one pass. `Apart` takes any models with an `answer` that has a gradient, one after
another: it has what a stack lacks (noise, KL, running statistics, another xi), and is faster for one model as long as
nothing is compiled. Model (s, e) is number s E + e.

    group(support, support_labels, query, query_labels, noise)    losses and accuracies, [M] each
    group.noise(tasks, seed, step)                                noise of q for a step, where there is any
    group.answer(support, support_labels, query)                  logits [M, B, n, k], for `sibcore.evaluate`
    group.trained()                                               the parameters that training changes, by name
    group.part(i, tensors)                                        of such tensors, what is model i's, by SIB's names
    group.unstack()                                               brings the models up to date
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sibcore.seeds import combine
from sibcore.sib import SIB
from sibcore.stack import Stacked, check_grid, misfit


class Apart(nn.Module):
    """The models [S][E], each by itself."""

    def __init__(self, models: Sequence[Sequence[SIB]]) -> None:
        super().__init__()
        check_grid(models)
        self.models = nn.ModuleList(itertools.chain(*models))
        self.streams, self.ways, self.dim = len(models), self.models[0].ways, self.models[0].dim
        for model in self.models:
            if (model.ways, model.dim) != (self.ways, self.dim):
                sizes = f"{model.ways} ways and {model.dim} dimensions do not go with {self.ways} and {self.dim}"
                raise ValueError(f"models that are trained together see the same tasks: {sizes}")

    def forward(
        self, support: Tensor, support_labels: Tensor, query: Tensor, query_labels: Tensor, noise: list[Tensor | None]
    ) -> tuple[Tensor, Tensor]:
        """Unit features support [S, B, m, d] and query [S, B, n, d] with labels -> losses and accuracies [M]."""
        found = []
        for i, model in enumerate(self.models):
            s = i * self.streams // len(self.models)
            loss, logits = negative_elbo(model, support[s], support_labels[s], query[s], query_labels[s], noise[i])
            right = logits.detach().max(-1).indices == query_labels[s]
            found.append((loss, right.to(loss.dtype).mean()))
        losses, accuracies = zip(*found, strict=True)
        return torch.stack(losses), torch.stack(accuracies)

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        """[M, B, n, k]: every model's answer to the same tasks."""
        return torch.stack([model.answer(support, support_labels, query) for model in self.models])

    def noise(self, tasks: int, seed: int, step: int) -> list[Tensor | None]:
        """For a step of training, the same for a model in any company."""

        def drawn(model: SIB) -> Tensor | None:
            return model.noise(tasks, torch.Generator().manual_seed(combine(seed, step)))

        return [drawn(model) if getattr(model, "sigma", 0) else None for model in self.models]

    def trained(self) -> dict[str, Tensor]:
        """xi of a model with K = 0 takes no part, and weight decay must not touch it."""
        idle = [i for i, model in enumerate(self.models) if isinstance(model, SIB) and not model.steps]
        left_out = tuple(f"models.{i}.xi." for i in idle)
        return {name: p for name, p in self.named_parameters() if p.requires_grad and not name.startswith(left_out)}

    def part(self, i: int, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        prefix = f"models.{i}."
        return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

    def unstack(self) -> None:
        """They are."""


Group = Stacked | Apart


def grouped(models: Sequence[Sequence[SIB]], compiled: bool) -> Group:
    """The models [S][E] as what trains them fastest."""
    several = list(itertools.chain(*models))
    faster = (len(several) > 1 or compiled) and all(isinstance(model, SIB) for model in several)
    return Stacked(models) if faster and misfit(models) is None else Apart(models)


def negative_elbo(
    model: nn.Module, support: Tensor, support_labels: Tensor, query: Tensor, query_labels: Tensor, noise: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Eq. (avi), mean over the tasks, and the logits [B, n, k]; features are unit vectors."""
    if not isinstance(model, SIB):  # nothing but the likelihood
        logits = model.answer(support, support_labels, query)
        return F.cross_entropy(logits.mT, query_labels), logits
    theta = model.infer(support, support_labels, query, noise)[-1]
    logits = model.classify(query, model.sample(theta, noise, -1))
    loss = F.cross_entropy(logits.mT, query_labels)
    if model.kl_weight:
        loss = loss + model.kl_weight * model.kl(theta).mean()
    return loss, logits
