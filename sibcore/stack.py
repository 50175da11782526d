"""Many SIBs as one module, which trains and answers with all of them in one pass.

The models come as a grid `[S][E]`. S is the number of streams: a stream is one endless sequence of training episodes,
and its E models all see the same ones. The models of a stack share ways, dim and everything in `SHARED`; they may
differ in the number of steps K, in the step size η, and in their parameters.

The stack works on inner products of features instead of the features themselves (`sibcore.step.product_step`): the
Gram matrix of an episode is computed once and serves all models of its stream. Each ξ is called as it stands in
`sibcore.xi`, one model's parameters at a time, and `torch.func.vmap` makes that one call for all models; any ξ will do.

Parameters are stacked in front, `[E, S, ...]`, largest K first, so that the models with steps left to do are always
the first ones.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from sibcore.sib import SIB, class_means
from sibcore.step import product_step, root
from sibcore.xi import Context

SHARED = ("ways", "dim", "transductive", "xi", "width", "reduction", "normalise")


class Stacked(nn.Module):
    """A grid of SIBs as one module whose parameters have the names of SIB's and are `[E, S, ...]`."""

    def __init__(self, models: Sequence[Sequence[SIB]]) -> None:
        """Stack copies of the parameters of `models [S][E]`; `write_back` puts them into the models again."""
        super().__init__()
        reason = why_not_stacked(models)
        if reason:
            raise ValueError(reason)
        first = models[0][0]
        self.ways, self.dim = first.ways, first.dim
        self.transductive, self.reduction = first.transductive, first.reduction
        self.models = [model for stream in models for model in stream]
        self.streams = len(models)
        steps = [model.steps for model in models[0]]
        self.order = sorted(range(len(steps)), key=lambda e: -steps[e])  # place in the stack -> e
        self.steps = [steps[e] for e in self.order]
        self.xi = copy.deepcopy(first.xi) if self.steps[0] else None
        eta = self._stack(lambda model: first.scale.new_tensor(model.eta), len(self.order))
        self.register_buffer("eta", eta, persistent=False)
        for name, _ in first.named_parameters():
            # ξ of a model with K = 0 takes no part, and weight decay must not touch it
            count = self.active(0) if name.startswith("xi.") else len(self.order)
            if count:
                owner, _, leaf = name.rpartition(".")
                values = self._stack(lambda model, name=name: model.get_parameter(name).detach(), count)
                setattr(self.get_submodule(owner), leaf, nn.Parameter(values))

    def forward(
        self, support: Tensor, support_labels: Tensor, query: Tensor, query_labels: Tensor, noise: None = None
    ) -> tuple[Tensor, Tensor]:
        """Return each model's loss and accuracy on its episodes, both `[M]`.

        Args:
            support, support_labels, query: as in `logits`.
            query_labels: labels of the queries, `[S, B, n]`.
            noise: always None, because stacked SIBs use a point estimate of w.
        """
        logits = self.logits(support, support_labels, query)
        of_class = query_labels.unsqueeze(1) == torch.arange(self.ways, device=query.device)[:, None, None]
        losses = logits.logsumexp(2) - torch.where(of_class, logits, 0).sum(2)  # -log p(y | w)
        right = (logits.detach().max(2).indices == query_labels).to(losses.dtype)
        return self._by_number(losses.mean((-2, -1))), self._by_number(right.mean((-2, -1)))

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        """Return every model's logits for the same episodes, `[M, B, n, k]`; for `sibcore.evaluate`."""
        shared = (value.expand(self.streams, *value.shape) for value in (support, support_labels, query))
        return self._by_number(self.logits(*shared)).permute(0, 2, 3, 1)

    def logits(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        """Return the logits ŷ of all models, each after its own number of steps.

        Args:
            support: unit features `[S, B, m, d]`.
            support_labels: their labels, `[S, B, m]`.
            query: unit features `[S, B, n, d]`.

        Returns:
            ŷ, `[E, S, k, B, n]`, in the order of the stack.
        """
        scale, bias = self.scale[..., None, None, None], self.bias[..., None, None, None]
        prototypes, of_class = class_means(support, support_labels, self.ways)
        # θ moves along the anchors. Its products with them are needed for the steps, those with the queries for ŷ.
        anchors, points = (query, query) if self.transductive else (support, torch.cat([support, query], 2))
        n, m = query.shape[2], anchors.shape[2]
        gram = anchors.flatten(0, 1) @ points.flatten(0, 1).mT  # [S B, m, z]
        rate = scale * self.eta[..., None, None, None] / (m if self.reduction == "mean" else 1)
        context = self._context(gram, support, support_labels, query)

        theta = prototypes.unsqueeze(2) * self.prototype_weight.transpose(0, 1)[:, None, :, None]  # [S, B, E, k, d]
        square = theta.square().sum(-1).permute(2, 0, 3, 1).unsqueeze(-1)  # ‖θ‖², [E, S, k, B, 1]
        dots = episode_by_episode(theta.permute(2, 0, 3, 1, 4), points.flatten(0, 1).mT)  # f·θ, [E, S, k, B, z]
        finished = []  # cosines of the models that took all their steps, the last of the stack first
        for step in range(self.steps[0] + 1):
            cosine = dots / root(square)
            active = self.active(step)
            finished.append(cosine[active:, ..., -n:])
            if not active:
                break
            dots, square, cosine = dots[:active], square[:active], cosine[:active, ..., :m]
            logits = scale[:active] * (bias[:active] + cosine)
            if self.transductive:
                error = self._synthetic_gradient(logits, context)
            else:
                error = logits.softmax(2) - of_class.transpose(1, 2)  # dℓ/dŷ on the support set
            pushed = episode_by_episode(error, gram)
            dots, square = product_step(dots, square, cosine, error, pushed, rate[:active])
        return scale * (bias + torch.cat(finished[::-1]))

    def _synthetic_gradient(self, logits: Tensor, context: Context | None) -> Tensor:
        """Return ξ(ŷ) of the first models of the stack, each with its own parameters: `[E, S, k, B, n]` → the same."""
        count = len(logits)
        parameters = {name: stacked[:count].flatten(0, 1) for name, stacked in self.xi.named_parameters()}

        def xi_of_one_model(parameters: dict[str, Tensor], logits: Tensor, context: Context | None) -> Tensor:
            answer = functional_call(self.xi, parameters, (logits.permute(1, 2, 0), context))
            return answer.permute(2, 0, 1)

        if context:  # the same for all models of a stream
            context = Context(*(part.expand(count, *part.shape).flatten(0, 1) for part in context))
        dims = (0, 0, 0 if context else None)
        return vmap(xi_of_one_model, dims)(parameters, logits.flatten(0, 1), context).view(logits.shape)

    def _context(self, gram: Tensor, support: Tensor, support_labels: Tensor, query: Tensor) -> Context | None:
        """Return what ξ may look at besides the logits, `[S, B, ...]`; None for a ξ that does not."""
        if self.xi is None or not self.xi.needs_context:
            return None
        return Context(gram.unflatten(0, query.shape[:2]), query @ support.mT, support_labels)

    def active(self, step: int) -> int:
        """Return how many models of a stream have more than `step` steps to do. They are the first ones."""
        return sum(steps > step for steps in self.steps)

    def noise(self, tasks: int, seed: int, step: int) -> None:
        """Return None: stacked SIBs use a point estimate of w, so there is no noise to draw."""

    def trained(self) -> dict[str, Tensor]:
        """Return the parameters that training changes, by name."""
        return dict(self.named_parameters())

    def of_model(self, i: int, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return what belongs to model i in stacked tensors `[E, S, ...]`."""
        s, e = divmod(i, len(self.order))
        place = self.order.index(e)
        return {name: tensor[place, s] for name, tensor in tensors.items() if place < len(tensor)}

    @torch.no_grad()
    def write_back(self) -> None:
        """Copy the parameters as they are now into the models that were stacked."""
        for i, model in enumerate(self.models):
            for name, value in self.of_model(i, self.trained()).items():
                model.get_parameter(name).copy_(value)

    def _by_number(self, values: Tensor) -> Tensor:
        """Put `[E, S, ...]`, largest K first, into the order in which the models were given, `[M, ...]`."""
        places = [self.order.index(e) for e in range(len(self.order))]
        return values[places].transpose(0, 1).flatten(0, 1)

    def _stack(self, value: Callable[[SIB], Tensor], count: int) -> Tensor:
        """Return a value of each of the first `count` models of every stream, `[count, S, ...]`."""
        columns = [self.models[e :: len(self.order)] for e in self.order[:count]]
        return torch.stack([torch.stack([value(model) for model in column]) for column in columns])


def episode_by_episode(x: Tensor, matrices: Tensor) -> Tensor:
    """Multiply each episode's part of x by the episode's own matrix, for all models at once.

    Args:
        x: `[E, S, k, B, m]`.
        matrices: `[S B, m, z]`.

    Returns:
        `[E, S, k, B, z]`.
    """
    models, streams, ways, tasks, m = x.shape
    product = x.permute(1, 3, 0, 2, 4).reshape(streams * tasks, models * ways, m) @ matrices
    return product.view(streams, tasks, models, ways, -1).permute(2, 0, 3, 1, 4)


def check_grid(models: Sequence[Sequence[nn.Module]]) -> None:
    """Raise a ValueError if the streams of a grid do not have equally many models."""
    counts = [len(stream) for stream in models]
    if len(set(counts)) != 1 or 0 in counts:
        raise ValueError(f"expected streams of equally many models, at least one, got {counts}")


def why_not_stacked(models: Sequence[Sequence[SIB]]) -> str | None:
    """Return why the models `[S][E]` cannot be stacked, or None if they can."""
    check_grid(models)
    first = models[0][0]
    for s, stream in enumerate(models):
        for e, model in enumerate(stream):
            where, setup = f"model {e} of stream {s}", model.setup
            if model.kl_weight or model.sigma:  # both leave the span of θ⁰ and the features
                options = f"kl_weight = {model.kl_weight} and sigma = {model.sigma}"
                return f"{where} has {options}: inner products of features can express neither KL nor noise"
            if setup["normalise"] == "running":
                return f"{where} has normalise = 'running': its averages change while ξ is computed, which vmap forbids"
            peer, other = (models[0][e], f"model {e} of stream 0") if s else (first, "the first model")
            for name in (*SHARED, "steps") if s else SHARED:
                if setup[name] != peer.setup[name]:
                    unlike = f"{where} has {name} = {setup[name]}, but {other} has {peer.setup[name]}"
                    return f"{unlike}: models of a stack share {', '.join(SHARED)}, and streams the same K in order"
            if (model.scale.dtype, model.scale.device) != (first.scale.dtype, first.scale.device):
                return f"{where} is {model.scale.dtype} on {model.scale.device}, unlike the first model"
    return None
