"""What the paper claims about synthetic and true gradients, and what we measured."""

from __future__ import annotations

from sibrepro import paper
from sibrepro.claim import AGREES, DIFFERS, FEW_SHOT, Claim, above_zero, points
from sibrepro.facts import flat
from sibrepro.meta_training.runs import gain
from sibrepro.studies.synthetic_gradients import plan


def claims() -> list[Claim]:
    """Return two claims: the true gradient on the support set does not help, synthetic gradients on the queries do.

    The first is judged by the largest gain of inductive SIB over all K and η, the second by what SIB gains over it.
    """
    where, printed = "appendix, $K$ and $\\eta$", f"{paper.gain_of_three_steps(1):+.1f} points"
    text = "inductive SIB, which follows the true gradient on the support set, gains nothing over $K=0$"
    nothing = Claim(FEW_SHOT, text, where, "“no improvement”")
    text = "SIB, which follows synthetic gradients on the queries, does gain, 1‑shot, $K=3$"
    headline = "Synthetic gradients on the queries over true ones on the support set, 1-shot"
    better = Claim(FEW_SHOT, text, where, printed, headline=headline)

    found = plan.published()
    inductive = {(K, eta): records for (kind, _, K, eta), records in found.items() if kind == "inductive SIB"}
    start, gains = inductive.get((0, plan.RATE)), {}
    for (K, eta), records in inductive.items():
        if K and start:
            gains |= {(tested, K, eta): gain(start, records, tested).mean for tested in plan.TESTED}
    if gains:
        most = max(gains.values())
        tested, _, eta = least = min(gains, key=gains.get)
        ours = f"at most {most:+.2f} points in {len(gains)} settings"
        note = f"at η = {eta:g} it loses up to {-gains[least]:.1f} points, trained on one shot and tested on {tested}"
        nothing = nothing.measured(ours, AGREES if most < 1 else DIFFERS, flat(inductive), note)

    without, sib = inductive.get((3, plan.RATE)), found.get(("SIB", 1, 3, plan.RATE))
    if without and sib:
        score = gain(without, sib)
        better = better.measured(f"{points(score)} over inductive SIB", above_zero(score), [*without, *sib])
    return [nothing, better]
