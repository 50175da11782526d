"""What the paper claims about domain adaptation on PACS, and what we measured."""

from __future__ import annotations

from sibrepro import paper
from sibrepro.claim import FURTHER, Claim, above_zero, points
from sibrepro.facts import flat
from sibrepro.studies.pacs import plan
from sibrepro.studies.pacs import tables as pacs_tables


def claims() -> list[Claim]:
    """Return the claims, each judged by the average over the four targets.

    The first two say that SIB-Rot's steps help: on networks that were fine-tuned, and on ImageNet's features. The third
    says that the step of eq. (ssup) is needed.
    """
    printed = paper.pacs().query("target == 'average'").set_index(["method", "K"])["value"]
    theirs = f"{printed['SIB-Rot', 0]:.1f} → {printed['SIB-Rot', 3]:.1f} %"
    where = "appendix, PACS"
    help_ = "Three synthetic gradient steps help SIB-Rot on a new domain (PACS, average of four"
    headline = "SIB-Rot, no steps → three steps, average of four domains (PACS)"
    tuned = Claim(FURTHER, f"{help_})", where, theirs, headline=headline)
    frozen = Claim(FURTHER, f"{help_}; backbone not fine-tuned)", where, theirs)
    needed = r"Starting from $\theta^0=\lambda$ is not enough: the rotation step of eq. (ssup) is needed (PACS)"
    start = Claim(FURTHER, needed, where, "“insufficient”")
    found, no_steps = plan.published(), ("SIB-Rot", 0)
    return [
        _adapted(tuned, found["fine-tuned"], no_steps, "EfficientNet-Lite0 at 96 pixels, trained in two stages"),
        _adapted(frozen, found["frozen"], no_steps, "frozen EfficientNet-Lite0"),
        _adapted(start, found["fine-tuned"], ("SIB", 3), "three steps each, from λ and from eq. (ssup)"),
    ]


def _adapted(claim: Claim, found: plan.Scores, before: plan.Key, note: str) -> Claim:
    """Return the claim with what SIB-Rot with three steps gains over the method `before`, if both were measured."""
    first, last = found.get(before, {}), found.get(("SIB-Rot", 3), {})
    gain = pacs_tables.gains(first, last).get(pacs_tables.AVERAGE)
    if gain is None:
        return claim
    means = [pacs_tables.scores(part)[pacs_tables.AVERAGE].mean for part in (first, last)]
    ours = f"{means[0]:.1f} → {means[1]:.1f} %, {points(gain)}"
    if abs(gain.mean) <= gain.ci95:
        note += "; no significant difference"
    return claim.measured(ours, above_zero(gain), [*flat(first), *flat(last)], note)
