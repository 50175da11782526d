"""One step of synthetic gradient descent, eq. (sib), for a cosine classifier. It is written down here and nowhere else.

With ŷ_ij = scale (bias + cos(f_i, θ_j)), error e_ij = ξ(ŷ)_ij and step size η, the step is

    θ_j ← θ_j − η Σ_i e_ij ∂ŷ_ij/∂θ_j,    ∂cos(f_i, θ_j)/∂θ_j = (f_i − cos(f_i, θ_j) θ_j / ‖θ_j‖) / ‖θ_j‖

`cosine_step` takes it on the class weights θ themselves. `product_step` takes the same step on inner products alone,
which is what it costs to train many models at once: θ stays in the span of θ⁰ and the features, so none of the d
dimensions is needed. In both, queries come last in memory, so that sums over them run over neighbouring numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor


def cosines(features: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Return cos(f_i, w_j) `[B, k, n]` and ‖w_j‖ `[B, k, 1]` of unit features `[B, n, d]` and weights `[B, k, d]`."""
    norm = torch.linalg.vector_norm(w, dim=-1, keepdim=True).clamp_min(1e-12)
    return torch.bmm(w, features.mT) / norm, norm


def cosine_step(theta: Tensor, w: Tensor, norm: Tensor, features: Tensor, cosine: Tensor, error: Tensor) -> Tensor:
    """Take one step of eq. (sib) on class weights.

    Args:
        theta: class weights θᵏ, `[B, k, d]`.
        w: the weights that the predictions were made with, a draw from q_θ or θ itself, `[B, k, d]`.
        norm: ‖w_j‖, `[B, k, 1]`.
        features: unit-length features f_i, `[B, n, d]`.
        cosine: cos(f_i, w_j), `[B, k, n]`.
        error: e_ij times η and ∂ŷ/∂cos, `[B, k, n]`.

    Returns:
        θᵏ⁺¹, `[B, k, d]`.
    """
    error = error / norm
    along = (error * cosine).sum(-1, keepdim=True) / norm
    return torch.baddbmm(torch.addcmul(theta, along, w), error, features, alpha=-1)


def product_step(
    dots: Tensor, square: Tensor, cosine: Tensor, error: Tensor, pushed: Tensor, rate: Tensor
) -> tuple[Tensor, Tensor]:
    """Take one step of eq. (sib) on inner products.

    With v_j = Σ_i e_ij f_i and r = η scale / ‖θ_j‖ the step is θ_j ← a θ_j − r v_j, where
    a = 1 + r v_j·θ_j / ‖θ_j‖². Taken with any feature f, and with θ_j itself, that becomes

        f·θ_j ← a f·θ_j − r f·v_j
        ‖θ_j‖² ← ‖θ_j‖² + r² (‖v_j‖² − (v_j·θ_j)² / ‖θ_j‖²)

    Args:
        dots: f·θ_j for all images of interest, first the n that θ moves along, `[..., k, B, z]`.
        square: ‖θ_j‖², `[..., k, B, 1]`.
        cosine: cosines of the first n, `[..., k, B, n]`.
        error: e_ij, `[..., k, B, n]`.
        pushed: f·v_j, `[..., k, B, z]`.
        rate: η ∂ŷ/∂cos, which broadcasts to `square`.

    Returns:
        `dots` and `square` after the step.
    """
    norm = root(square)
    r = rate / norm
    along = (error * cosine).sum(-1, keepdim=True)  # v_j·θ_j / ‖θ_j‖
    squared = (error * pushed[..., : error.shape[-1]]).sum(-1, keepdim=True)  # ‖v_j‖²
    dots = dots * (1 + r * along / norm) - r * pushed
    return dots, square + r.square() * (squared - along.square())


def root(square: Tensor) -> Tensor:
    """Return the length ‖θ_j‖ that belongs to ‖θ_j‖²; rounding must not make it zero or worse."""
    return square.clamp_min(1e-24).sqrt()
