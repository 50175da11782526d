"""The synthetic information bottleneck (SIB) for few-shot classification, for a batch of episodes.

    θ⁰ = λ(dˡ)                                                from the support set
    θᵏ⁺¹ = θᵏ − η [ Σ_i ξ(ŷ_i) ∂ŷ_i/∂w + ∇ KL(q_θ ‖ p_ψ) ]     eq. (sib), with w ~ q_θ
    ŷ_ij = scale (bias + cos(f_i, w_j))                       cosine classifier

ξ comes from `sibcore.xi` and the step from `sibcore.step`. The step is written in closed form, so that the forward pass
needs no autograd and training no double backward. `sibcore.reference` has the same with plain autograd, for one
episode: start there to read the method.

Shapes: B episodes, k classes ("ways"), m support images, n queries, d features. Inside, queries come last in memory
(`[B, k, n]`), so that sums over them run over neighbouring numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sibcore.step import cosine_step, cosines
from sibcore.xi import XIS, Context, Norm

# Where the paper's text and the authors' released code differ. Both leave q's variance open when q is not a Dirac.
FIDELITY: dict[str, dict[str, Any]] = {
    "paper": {"reduction": "mean", "normalise": "none", "kl_weight": 1.0, "sigma": 0.01},
    "release": {"reduction": "sum", "normalise": "task", "kl_weight": 0.0, "sigma": 0.0},
}


class SIB(nn.Module):
    """Synthetic gradient descent on the unlabelled queries of an episode.

    Permuting the queries of an episode permutes its logits. Permuting its classes does so too where ξ treats all
    classes alike; the paper's ξ, an MLP over k logits, does not. A SIB whose ξ does has `any_way = True`: its
    parameters fit any number of classes.
    """

    def __init__(
        self,
        ways: int,
        dim: int,
        steps: int = 3,
        eta: float = 1e-3,
        *,
        xi: str = "mlp",
        width: int = 0,
        fidelity: Literal["paper", "release"] = "release",
        reduction: Literal["sum", "mean"] | None = None,
        normalise: Norm | None = None,
        kl_weight: float | None = None,
        sigma: float | None = None,
        transductive: bool = True,
        seed: int = 0,
    ) -> None:
        """Make an untrained SIB.

        Args:
            ways: number of classes k of an episode.
            dim: length d of a feature vector.
            steps: number K of synthetic gradient steps.
            eta: step size η.
            xi: name of the synthetic gradient network, a key of `sibcore.xi.XIS`.
            width: size of ξ's hidden layers; 0 for that ξ's default.
            fidelity: whether the four options below follow the paper's text or the authors' released code, which
                differ (see `FIDELITY`); an option that is given goes first.
            reduction: whether a step takes the sum over queries or their mean.
            normalise: the norm inside ξ (see `sibcore.xi.Xi`).
            kl_weight: weight of KL(q_θ ‖ p_ψ) in the steps and in the loss. The prior p_ψ = N(psi_mean,
                diag exp(2 psi_log_std)) is learned and shared by all classes, whose order means nothing.
            sigma: standard deviation of q_θ = N(θ, σ² I); with 0 it is a point.
            transductive: with False θ follows the true gradient on the support set instead, eq. (maml), which is the
                paper's inductive SIB. Everything else is shared.
            seed: seed of ξ's first weights.
        """
        super().__init__()
        if fidelity not in FIDELITY:
            raise ValueError(f"fidelity = {fidelity!r}: expected one of {', '.join(map(repr, FIDELITY))}")
        given = {"reduction": reduction, "normalise": normalise, "kl_weight": kl_weight, "sigma": sigma}
        options = FIDELITY[fidelity] | {name: value for name, value in given.items() if value is not None}
        self.setup = {"ways": ways, "dim": dim, "steps": steps, "eta": eta, "xi": xi, "width": width}
        self.setup |= {"transductive": transductive, "seed": seed, **options}
        _check_setup(self.setup)
        self.ways, self.dim, self.steps, self.eta, self.transductive = ways, dim, steps, eta, transductive
        self.reduction, self.kl_weight, self.sigma = options["reduction"], options["kl_weight"], options["sigma"]

        self.scale = nn.Parameter(torch.tensor(10.0))
        self.bias = nn.Parameter(torch.tensor(0.0))
        self.prototype_weight = nn.Parameter(torch.ones(dim))
        with torch.random.fork_rng(devices=[]):  # torch's layers draw their first weights from the global generator
            torch.manual_seed(seed)
            self.xi = XIS[xi](ways, options["normalise"], width) if transductive else None
        self.any_way = self.xi is None or self.xi.any_way
        if self.kl_weight:
            self.psi_mean = nn.Parameter(torch.zeros(dim))
            # unit features have coordinates of about 1 / sqrt(d): a prior of that size is neither loose nor tight
            self.psi_log_std = nn.Parameter(torch.full((dim,), -0.5 * math.log(dim)))

    @classmethod
    def from_setup(cls, setup: Mapping[str, Any]) -> SIB:
        """Return an untrained SIB with the `setup` of another, as a checkpoint has it.

        Checkpoints of earlier versions named ξ by `equivariant` (yes or no) and `set_aware` (its width).
        """
        setup = dict(setup)
        equivariant, set_aware = setup.pop("equivariant", False), setup.pop("set_aware", 0)
        if set_aware:
            setup |= {"xi": "set", "width": set_aware}
        elif equivariant:
            setup |= {"xi": "equivariant"}
        return cls(**setup)

    def forward(
        self, support: Tensor, support_labels: Tensor, query: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return the logits ŷ of the queries after K steps.

        Args:
            support: features of the support images, `[B, m, d]`.
            support_labels: their labels, whole numbers from 0 to k - 1, `[B, m]`.
            query: features of the queries, `[B, n, d]`.
            generator: where the noise of q_θ is drawn from if sigma > 0. Without one, w is the mean of q_θ, which is θ.

        Returns:
            ŷ, `[B, n, k]`.
        """
        theta, noise = self._checked(support, support_labels, query, generator)
        return self.classify(unit(query), self.sample(theta[-1], noise, -1))

    def trajectory(
        self, support: Tensor, support_labels: Tensor, query: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return θ⁰, ..., θᴷ as `[K+1, B, k, d]`; the arguments are those of `forward`."""
        return torch.stack(self._checked(support, support_labels, query, generator)[0])

    def infer(
        self, support: Tensor, support_labels: Tensor, query: Tensor, noise: Tensor | None = None
    ) -> list[Tensor]:
        """Return θ⁰, ..., θᴷ, each `[B, k, d]`. This is the hot path: features are unit vectors and nothing is checked.

        Args:
            support: unit features `[B, m, d]`.
            support_labels: their labels, `[B, m]`.
            query: unit features `[B, n, d]`.
            noise: a standard normal for every step and one for the final w, `[K+1, B, k, d]`; None means w = θ.
        """
        prototypes, of_class = class_means(support, support_labels, self.ways)
        theta = prototypes * self.prototype_weight  # θ⁰ = λ(dˡ)
        if self.transductive:
            return self.descend(theta, query, noise, support, support_labels)

        def true_gradient(logits: Tensor) -> Tensor:  # dℓ/dŷ of the cross-entropy on the support set
            return logits.softmax(-1) - of_class.mT

        return self._descend(theta, support, true_gradient, noise)

    def descend(
        self,
        theta: Tensor,
        query: Tensor,
        noise: Tensor | None = None,
        support: Tensor | None = None,
        support_labels: Tensor | None = None,
    ) -> list[Tensor]:
        """Return θ⁰, ..., θᴷ from any θ⁰ = `theta [B, k, d]`, following ξ on unit queries `[B, n, d]`.

        The support set, where there is one, is only for a ξ that looks at it.
        """
        context = None
        if self.xi.needs_context:
            similar = None if support is None else query @ support.mT
            context = Context(query @ query.mT, similar, support_labels)
        return self._descend(theta, query, lambda logits: self.xi(logits, context), noise)

    def _descend(
        self, theta: Tensor, features: Tensor, error_of: Callable[[Tensor], Tensor], noise: Tensor | None
    ) -> list[Tensor]:
        """Take K steps of eq. (sib) along the features; `error_of` maps logits `[B, n, k]` to dℓ/dŷ or its stand-in."""
        thetas, rate = [theta], self.rate(features.shape[1])
        for k in range(self.steps):
            w = self.sample(thetas[k], noise, k)
            cosine, norm = cosines(features, w)
            error = error_of((self.scale * (self.bias + cosine)).mT).mT
            theta = cosine_step(thetas[k], w, norm, features, cosine, rate * error)
            if self.kl_weight and self.transductive:  # eq. (maml) has no KL
                theta = theta - self.eta * self.kl_weight * self._kl_gradient(thetas[k])
            thetas.append(theta)
        return thetas

    def rate(self, n: int) -> Tensor:
        """Return η ∂ŷ/∂cos, divided by n where a step takes the mean over n queries instead of their sum."""
        return self.scale * (self.eta / (n if self.reduction == "mean" else 1))

    def changed(self, **setup: Any) -> SIB:
        """Return a SIB with the same parameters and another setup, such as more steps."""
        other = SIB(**self.setup | setup).to(self.scale)
        other.load_state_dict(self.state_dict())
        return other

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        """Return the logits `[B, n, k]` for unit features, without checks and noise. This is evaluation's hot path."""
        return self.classify(query, self.infer(support, support_labels, query)[-1])

    def classify(self, features: Tensor, w: Tensor) -> Tensor:
        """Return the logits ŷ `[B, n, k]` of unit features `[B, n, d]` with class weights w `[B, k, d]`."""
        return (self.scale * (self.bias + cosines(features, w)[0])).mT

    def sample(self, theta: Tensor, noise: Tensor | None, k: int) -> Tensor:
        """Return w(θ, ε) = θ + σ ε with ε = noise[k], or θ itself where there is no noise."""
        return theta if noise is None else theta + self.sigma * noise[k]

    def noise(self, tasks: int, generator: torch.Generator | None) -> Tensor | None:
        """Draw a standard normal `[K+1, B, k, d]` for `tasks` episodes; None if σ = 0 or there is no generator."""
        if self.sigma == 0 or generator is None:
            return None
        shape = (self.steps + 1, tasks, self.ways, self.dim)
        noise = torch.randn(shape, generator=generator, dtype=self.scale.dtype, device=generator.device)
        return noise.to(self.scale.device)

    def kl(self, theta: Tensor) -> Tensor:
        """Return KL(q_θ ‖ p_ψ) of each episode, `[B]`, for θ `[B, k, d]`."""
        variance = (2 * self.psi_log_std).exp()
        ratio = (self.sigma**2 + (theta - self.psi_mean).square()) / variance
        return (self.psi_log_std - math.log(self.sigma) + (ratio - 1) / 2).sum((-2, -1))

    def _kl_gradient(self, theta: Tensor) -> Tensor:
        """Return the gradient of `kl` by θ."""
        return (theta - self.psi_mean) * (-2 * self.psi_log_std).exp()

    def _checked(
        self, support: Tensor, support_labels: Tensor, query: Tensor, generator: torch.Generator | None
    ) -> tuple[list[Tensor], Tensor | None]:
        """Check the episodes, scale their features to unit length, and return θ⁰, ..., θᴷ and the noise."""
        if not torch.compiler.is_compiling():
            check_tasks(self, support, support_labels, query)
        noise = self.noise(len(query), generator)
        return self.infer(unit(support), support_labels, unit(query), noise), noise


def unit(features: Tensor) -> Tensor:
    """Return the feature vectors, each divided by its length."""
    return F.normalize(features, dim=-1)


def class_means(support: Tensor, support_labels: Tensor, ways: int) -> tuple[Tensor, Tensor]:
    """Return the mean feature of each class, and which image is of which class.

    Args:
        support: features, `[..., m, d]`.
        support_labels: their labels, `[..., m]`.
        ways: number of classes k.

    Returns:
        means `[..., k, d]`, and memberships of 0 and 1, `[..., k, m]`.
    """
    of_class = (support_labels.unsqueeze(-2) == torch.arange(ways, device=support.device)[:, None]).to(support)
    return (of_class @ support) / of_class.sum(-1, keepdim=True), of_class


def check_tasks(model: SIB, support: Tensor, support_labels: Tensor, query: Tensor) -> None:
    """Raise a ValueError that says what is wrong with a batch of episodes, before it turns into a wrong number."""
    expected = "expected support [B, m, d], support_labels [B, m] and query [B, n, d]"
    shapes = f"got {[*support.shape]}, {[*support_labels.shape]} and {[*query.shape]}"
    if support.ndim != 3 or query.ndim != 3 or support_labels.shape != support.shape[:2] or len(query) != len(support):
        raise ValueError(f"{expected}; {shapes}")
    if support.shape[-1] != model.dim or query.shape[-1] != model.dim:
        raise ValueError(f"this SIB was made for features of size d = {model.dim}; {expected}; {shapes}")
    if support_labels.is_floating_point() or support_labels.dtype == torch.bool:
        raise ValueError(f"support_labels must be whole numbers, got {support_labels.dtype}")
    if support_labels.min() < 0 or support_labels.max() >= model.ways:
        low, high = int(support_labels.min()), int(support_labels.max())
        raise ValueError(f"support_labels must lie in 0..{model.ways - 1} for {model.ways} ways, got {low}..{high}")
    missing = (F.one_hot(support_labels.long(), model.ways).sum(1) == 0).nonzero()
    if len(missing):
        task, label = missing[0].tolist()
        raise ValueError(f"task {task} has no support example of class {label}: each of {model.ways} ways needs one")
    if model.transductive and model.steps and model.xi.normalise == "task" and query.shape[1] < 2:
        raise ValueError("xi normalises over a task's queries and needs at least 2 of them (or normalise='none')")
    for name, features in {"support": support, "query": query}.items():
        bad = ~torch.isfinite(features).all(-1)
        if bad.any():
            task, example = bad.nonzero()[0].tolist()
            raise ValueError(f"{name} features of task {task}, example {example} hold NaN or infinity")


def _check_setup(setup: dict[str, Any]) -> None:
    """Raise a ValueError for an option that is impossible."""
    bounds = {"ways": 2, "dim": 1, "steps": 0, "kl_weight": 0, "sigma": 0, "width": 0}
    for name, low in bounds.items():
        if not setup[name] >= low:
            raise ValueError(f"{name} = {setup[name]}: expected at least {low}")
    if setup["xi"] not in XIS:
        raise ValueError(f"xi = {setup['xi']!r}: expected one of {', '.join(map(repr, XIS))} (see sibcore/xi.py)")
    if not setup["eta"] > 0:
        raise ValueError(f"eta = {setup['eta']}: the step size must be positive")
    if setup["reduction"] not in ("sum", "mean"):
        raise ValueError(f"reduction = {setup['reduction']!r}: expected 'sum' or 'mean'")
    if setup["normalise"] not in get_args(Norm):
        raise ValueError(f"normalise = {setup['normalise']!r}: expected one of {', '.join(map(repr, get_args(Norm)))}")
    if setup["kl_weight"] and not setup["sigma"]:
        raise ValueError("KL(q || p_psi) is infinite for a Dirac q: give sigma > 0, or kl_weight = 0")
