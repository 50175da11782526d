"""What the paper claims of synthetic against true gradients on the support set, and what was measured."""

from __future__ import annotations

from sibrepro import paper
from sibrepro.claim import AGREES, DIFFERS, FEW_SHOT, Claim, above_zero, points
from sibrepro.facts import flat
from sibrepro.meta_training.runs import gain
from sibrepro.studies.synthetic_gradients import plan


def claims() -> list[Claim]:
    """SIB against its inductive variant, over K and eta."""
    where, theirs = "appendix, $K$ and $\\eta$", f"{paper.gain_of_three_steps(1):+.1f} points"
    alone = "the true gradient on the support set alone does not improve on no step (inductive SIB)"
    nothing = Claim(FEW_SHOT, alone, where, "“no improvement”")
    better = Claim(FEW_SHOT, "the synthetic one on the queries does, 1‑shot, $K=3$", where, theirs)
    found = plan.published()
    inductive = {key[2:]: records for key, records in found.items() if key[0] == "inductive SIB"}
    start = inductive.get((0, plan.RATE))
    gains = {
        (tested, K, eta): gain(start, records, tested)
        for (K, eta), records in inductive.items()
        if K and start
        for tested in plan.TESTED
    }
    if gains:
        most, least = (choose(gains, key=lambda key: gains[key].mean) for choose in (max, min))
        nothing = nothing.measured(
            f"at most {gains[most].mean:+.2f} points in {len(gains)} settings",
            AGREES if gains[most].mean < 1 else DIFFERS,
            flat(inductive),
            f"at η = {least[2]:g} it loses up to {-gains[least].mean:.1f} (trained on one shot, tested on {least[0]})",
        )
    pair = [found.get((kind, 1, 3, plan.RATE)) for kind in ("inductive SIB", "SIB")]
    if all(pair):
        score = gain(*pair)
        better = better.measured(f"{points(score)} over the inductive one", above_zero(score), [*pair[0], *pair[1]])
    return [nothing, better]
