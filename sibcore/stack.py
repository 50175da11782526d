"""Many SIBs as one module that works with inner products of features instead of features.

A stack is S streams of tasks times E models per stream: the models of a stream see the same tasks. All share ways,
dim, transduction, reduction and xi's normalisation, and may differ in K, eta and parameters. Parameters are stacked in
front, [E, S, ...], largest K first, so that the models with steps left to do are always the first ones.

theta_j^k stays in the span of theta_j^0 and the features, so a step needs none of the d dimensions. With
v_j = sum_i e_ij f_i, G_ii' = f_i . f_i', c_ij = f_i . theta_j and r = eta scale / ||theta_j||, eq. (sib) is

    theta_j <- a theta_j - r v_j,    a = 1 + r v_j . theta_j / ||theta_j||^2,    v_j . theta_j = e_j . c_j
    c_j <- a c_j - r G e_j
    ||theta_j||^2 <- ||theta_j||^2 + r^2 (e_j . G e_j - (e_j . c_j)^2 / ||theta_j||^2)

G is the same for all models of a stream and has no gradient.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sibcore.sib import SIB, class_means
from sibcore.xi import standardise

SHARED = ("ways", "dim", "transductive", "equivariant", "set_aware", "reduction", "normalise")


class Stacked(nn.Module):
    """The models [S][E] as one: parameters have the names of SIB's and are [E, S, ...], largest K first."""

    def __init__(self, models: Sequence[Sequence[SIB]]) -> None:
        super().__init__()
        reason = misfit(models)
        if reason:
            raise ValueError(reason)
        first = models[0][0]
        self.ways, self.dim = first.ways, first.dim
        self.transductive, self.reduction = first.transductive, first.reduction
        self.models = [model for stream in models for model in stream]
        self.streams = len(models)
        self.order = sorted(range(len(models[0])), key=lambda e: -models[0][e].steps)  # place in the stack -> e
        self.steps = [models[0][e].steps for e in self.order]
        self.xi = copy.deepcopy(first.xi) if self.steps[0] else None
        eta = self._stack(lambda model: first.scale.new_tensor(model.eta), len(self.order))
        self.register_buffer("eta", eta, persistent=False)
        for name, _ in first.named_parameters():
            # xi of a model with K = 0 takes no part, and weight decay must not touch it
            count = self.active(0) if name.startswith("xi.") else len(self.order)
            if count:
                owner, _, leaf = name.rpartition(".")
                values = self._stack(lambda model, name=name: model.get_parameter(name).detach(), count)
                setattr(self.get_submodule(owner), leaf, nn.Parameter(values))

    def forward(
        self, support: Tensor, support_labels: Tensor, query: Tensor, query_labels: Tensor, noise: None = None
    ) -> tuple[Tensor, Tensor]:
        """Each model's loss and accuracy on its tasks, both [M]; query_labels is [S, B, n], the rest as in `logits`."""
        logits = self.logits(support, support_labels, query)
        of_class = query_labels.unsqueeze(1) == torch.arange(self.ways, device=query.device)[:, None, None]
        losses = logits.logsumexp(2) - torch.where(of_class, logits, 0).sum(2)
        right = logits.detach().max(2).indices == query_labels
        return self._by_number(losses.mean((-2, -1))), self._by_number(right.to(losses.dtype).mean((-2, -1)))

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        """[M, B, n, k]: every model's answer to the same tasks."""
        shared = (value.expand(self.streams, *value.shape) for value in (support, support_labels, query))
        return self._by_number(self.logits(*shared)).permute(0, 2, 3, 1)

    def logits(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        """Unit features support [S, B, m, d] and query [S, B, n, d], support_labels [S, B, m] -> y^ [E, S, k, B, n]."""
        scale, bias = self.scale[..., None, None, None], self.bias[..., None, None, None]
        prototypes, of_class = class_means(support, support_labels, self.ways)
        # theta moves along the anchors' features; its dots with the anchors are needed for that, those with the queries
        # for the answer
        anchors, points = (query, query) if self.transductive else (support, torch.cat([support, query], 2))
        n, m = query.shape[2], anchors.shape[2]
        gram = anchors.flatten(0, 1) @ points.flatten(0, 1).mT  # [S B, m, z]
        rate = scale * self.eta[..., None, None, None] / (m if self.reduction == "mean" else 1)
        folded = self._folded()

        theta = prototypes.unsqueeze(2) * self.prototype_weight.transpose(0, 1)[:, None, :, None]  # [S, B, E, k, d]
        square = theta.square().sum(-1).permute(2, 0, 3, 1).unsqueeze(-1)  # ||theta||^2, [E, S, k, B, 1]
        dots = _task_by_task(theta.permute(2, 0, 3, 1, 4), points.flatten(0, 1).mT)  # f . theta, [E, S, k, B, z]
        cosines = []  # of the models that are done, the last of the stack first
        for step in range(self.steps[0] + 1):
            norm = square.clamp_min(1e-24).sqrt()
            cosine = dots / norm
            active = self.active(step)
            cosines.append(cosine[active:, ..., -n:])
            if not active:
                break
            dots, square, norm, cosine = dots[:active], square[:active], norm[:active], cosine[:active, ..., :m]
            if self.transductive:
                error = _synthetic_gradient(cosine, folded, self.xi.normalise == "task")  # stands for dl/dy^
            else:
                logits = scale[:active] * (bias[:active] + cosine)
                error = logits.softmax(2) - of_class.transpose(1, 2)  # dl/dy^ on the support set
            r = rate[:active] / norm
            pushed = _task_by_task(error, gram)  # f . v
            along = (error * cosine).sum(-1, keepdim=True)  # v . theta / ||theta||
            across = (error * pushed[..., :m]).sum(-1, keepdim=True) - along.square()
            dots = dots * (1 + r * along / norm) - r * pushed
            square = square + r.square() * across
        return scale * (bias + torch.cat(cosines[::-1]))

    def active(self, step: int) -> int:
        """How many models per stream have more than `step` steps to do: they are the first ones."""
        return sum(steps > step for steps in self.steps)

    def noise(self, tasks: int, seed: int, step: int) -> None:
        """A stack has none."""

    def trained(self) -> dict[str, Tensor]:
        return dict(self.named_parameters())

    def part(self, i: int, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What belongs to model i in stacked tensors [E, S, ...]."""
        s, e = divmod(i, len(self.order))
        place = self.order.index(e)
        return {name: tensor[place, s] for name, tensor in tensors.items() if place < len(tensor)}

    @torch.no_grad()
    def unstack(self) -> None:
        """Put the parameters as they are now into the models that were stacked."""
        for i, model in enumerate(self.models):
            for name, value in self.part(i, self.trained()).items():
                model.get_parameter(name).copy_(value)

    def _by_number(self, values: Tensor) -> Tensor:
        """[E, S, ...], largest K first -> [M, ...], as the models were given."""
        places = [self.order.index(e) for e in range(len(self.order))]
        return values[places].transpose(0, 1).flatten(0, 1)

    def _stack(self, value: Callable[[SIB], Tensor], count: int) -> Tensor:
        columns = [self.models[e :: len(self.order)] for e in self.order[:count]]
        return torch.stack([torch.stack([value(model) for model in column]) for column in columns])

    def _folded(self) -> list[tuple[Tensor, Tensor]] | None:
        """xi's weights [E S, out, in] and biases [E S, out, 1] for cosines instead of logits."""
        if self.xi is None:
            return None
        scale, bias = self.scale[: self.active(0)], self.bias[: self.active(0)]
        layers = self.xi.folded(scale[..., None, None], bias[..., None])
        return [(weight.flatten(0, 1), bias.flatten(0, 1)) for weight, bias in layers]


def _task_by_task(x: Tensor, matrices: Tensor) -> Tensor:
    """x [E, S, k, B, m] times each task's own matrix [S B, m, z] -> [E, S, k, B, z]."""
    models, streams, ways, tasks, m = x.shape
    product = x.permute(1, 3, 0, 2, 4).reshape(streams * tasks, models * ways, m) @ matrices
    return product.view(streams, tasks, models, ways, -1).permute(2, 0, 3, 1, 4)


def _synthetic_gradient(cosine: Tensor, folded: list[tuple[Tensor, Tensor]], normalise: bool) -> Tensor:
    """xi of every model, [E, S, k, B, n] -> the same; `folded` may hold further models after these."""
    *grid, ways, tasks, n = cosine.shape
    count = math.prod(grid)
    x = cosine.reshape(count, ways, tasks * n)
    *hidden, last = [(weight[:count], bias[:count]) for weight, bias in folded]
    for weight, bias in hidden:
        x = F.relu(weight @ x + bias)
        if normalise:
            x = standardise(x.unflatten(2, (tasks, n))).flatten(2)
    return (last[0] @ x + last[1]).view(cosine.shape)


def check_grid(models: Sequence[Sequence[SIB]]) -> None:
    counts = [len(stream) for stream in models]
    if len(set(counts)) != 1 or 0 in counts:
        raise ValueError(f"expected streams of equally many models, at least one, got {counts}")


def misfit(models: Sequence[Sequence[SIB]]) -> str | None:
    """Why the models [S][E] cannot be stacked, if they cannot."""
    check_grid(models)
    first = models[0][0]
    for s, stream in enumerate(models):
        for e, model in enumerate(stream):
            where, setup = f"model {e} of stream {s}", model.setup
            if model.kl_weight or model.sigma:
                options = f"kl_weight = {model.kl_weight} and sigma = {model.sigma}"
                return f"{where} has {options}: a stack has neither KL nor noise"
            if setup["equivariant"] or setup["set_aware"] or setup["normalise"] == "running":
                return f"{where}: a stack has the paper's xi, and no running statistics"
            peer, other = (models[0][e], f"model {e} of stream 0") if s else (first, "the first model")
            for name in (*SHARED, "steps") if s else SHARED:
                if setup[name] != peer.setup[name]:
                    unlike = f"{where} has {name} = {setup[name]}, but {other} has {peer.setup[name]}"
                    return f"{unlike}: models of a stack share {', '.join(SHARED)}, and streams the same K in order"
            if (model.scale.dtype, model.scale.device) != (first.scale.dtype, first.scale.device):
                return f"{where} is {model.scale.dtype} on {model.scale.device}, unlike the first model"
    return None
