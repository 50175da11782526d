"""What the paper claims of domain adaptation on PACS, and what was measured."""

from __future__ import annotations

from sibrepro import paper
from sibrepro.claim import FURTHER, Claim, above_zero, points
from sibrepro.facts import flat
from sibrepro.studies.pacs import plan
from sibrepro.studies.pacs import tables as pacs_tables


def claims() -> list[Claim]:
    """By the average over targets: on networks that were fine-tuned first, and on ImageNet's features."""
    printed = paper.pacs().query("target == 'average'").set_index(["method", "K"])["value"]
    theirs = f"{printed['SIB-Rot', 0]:.1f} → {printed['SIB-Rot', 3]:.1f} %"
    found, help_ = plan.published(), "SIB-Rot's steps help on an unseen domain (PACS, average"
    kinds = {"fine-tuned": "EfficientNet-Lite0 at 96 pixels, two stages", "frozen": "frozen EfficientNet-Lite0"}
    shown = [
        _adapted(Claim(FURTHER, f"{help_}{end})", "appendix, PACS", theirs), found[kind], ("SIB-Rot", 0), note)
        for (kind, note), end in zip(kinds.items(), ("", "; ImageNet's features as they are"), strict=True)
    ]
    start = Claim(
        FURTHER, r"$\theta^0=\lambda$ alone is not enough: eq. (ssup) comes first", "appendix, PACS", "“insufficient”"
    )
    return [*shown, _adapted(start, found["fine-tuned"], ("SIB", 3), "with three steps, from λ and from eq. (ssup)")]


def _adapted(claim: Claim, found: plan.Scores, before: plan.Key, note: str) -> Claim:
    """What SIB-Rot with three steps gains over `before`."""
    pair = [found.get(key, {}) for key in (before, ("SIB-Rot", 3))]
    score = pacs_tables.gains(*pair).get(pacs_tables.AVERAGE)
    if score is None:
        return claim
    values = " → ".join(f"{pacs_tables.scores(part)[pacs_tables.AVERAGE].mean:.1f}" for part in pair)
    apart = "; not told apart" if abs(score.mean) <= score.ci95 else ""
    records = [*flat(pair[0]), *flat(pair[1])]
    return claim.measured(f"{values} %, {points(score)}", above_zero(score), records, f"{note}{apart}")
