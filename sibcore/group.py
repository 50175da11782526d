"""Models that are trained together, S streams of episodes times E models per stream, behind one interface.

`Stacked` trains SIBs in one pass. `OneByOne` takes any models with an `answer` that has a gradient, one after another:
it has what a stack lacks (noise, KL, running statistics), and is faster for one model as long as nothing is compiled.
Model (s, e) is number s E + e. Both have

    group(support, support_labels, query, query_labels, noise)    losses and accuracies, [M] each
    group.noise(tasks, seed, step)                                noise of q_θ for a training step, where there is any
    group.answer(support, support_labels, query)                  logits [M, B, n, k], for `sibcore.evaluate`
    group.trained()                                               the parameters that training changes, by name
    group.of_model(i, tensors)                                    of such tensors, what is model i's, by SIB's names
    group.write_back()                                            brings the models up to date
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sibcore.seeds import combine
from sibcore.sib import SIB
from sibcore.stack import Stacked, check_grid, why_not_stacked


class OneByOne(nn.Module):
    """The models `[S][E]`, each computed by itself."""

    def __init__(self, models: Sequence[Sequence[SIB]]) -> None:
        """Hold the models themselves: training changes them in place."""
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
        """Return each model's loss and accuracy on its episodes, both `[M]`.

        Args:
            support, query: unit features `[S, B, m, d]` and `[S, B, n, d]`.
            support_labels, query_labels: their labels, `[S, B, m]` and `[S, B, n]`.
            noise: for each model what `noise` drew.
        """
        found = []
        for i, model in enumerate(self.models):
            s = i * self.streams // len(self.models)
            loss, logits = negative_elbo(model, support[s], support_labels[s], query[s], query_labels[s], noise[i])
            right = logits.detach().max(-1).indices == query_labels[s]
            found.append((loss, right.to(loss.dtype).mean()))
        losses, accuracies = zip(*found, strict=True)
        return torch.stack(losses), torch.stack(accuracies)

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        """Return every model's logits for the same episodes, `[M, B, n, k]`."""
        return torch.stack([model.answer(support, support_labels, query) for model in self.models])

    def noise(self, tasks: int, seed: int, step: int) -> list[Tensor | None]:
        """Draw the noise of one training step. It does not depend on which models train together."""

        def drawn(model: SIB) -> Tensor | None:
            return model.noise(tasks, torch.Generator().manual_seed(combine(seed, step)))

        return [drawn(model) if getattr(model, "sigma", 0) else None for model in self.models]

    def trained(self) -> dict[str, Tensor]:
        """Return the parameters that training changes, by name.

        The ξ of a model with K = 0 takes no part, and weight decay must not touch it.
        """
        idle = [i for i, model in enumerate(self.models) if isinstance(model, SIB) and not model.steps]
        left_out = tuple(f"models.{i}.xi." for i in idle)
        return {name: p for name, p in self.named_parameters() if p.requires_grad and not name.startswith(left_out)}

    def of_model(self, i: int, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return what belongs to model i among tensors named as this group's parameters, by the model's own names."""
        prefix = f"models.{i}."
        return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

    def write_back(self) -> None:
        """Do nothing: these models hold their own parameters."""


Group = Stacked | OneByOne


def grouped(models: Sequence[Sequence[SIB]], compiled: bool) -> Group:
    """Return the models `[S][E]` as the group that trains them fastest."""
    several = list(itertools.chain(*models))
    faster = (len(several) > 1 or compiled) and all(isinstance(model, SIB) for model in several)
    return Stacked(models) if faster and why_not_stacked(models) is None else OneByOne(models)


def negative_elbo(
    model: nn.Module, support: Tensor, support_labels: Tensor, query: Tensor, query_labels: Tensor, noise: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return eq. (avi), averaged over the episodes, and the logits `[B, n, k]`; features are unit vectors."""
    if not isinstance(model, SIB):  # nothing but the likelihood
        logits = model.answer(support, support_labels, query)
        return F.cross_entropy(logits.mT, query_labels), logits
    theta = model.infer(support, support_labels, query, noise)[-1]
    logits = model.classify(query, model.sample(theta, noise, -1))
    loss = F.cross_entropy(logits.mT, query_labels)
    if model.kl_weight:
        loss = loss + model.kl_weight * model.kl(theta).mean()
    return loss, logits
