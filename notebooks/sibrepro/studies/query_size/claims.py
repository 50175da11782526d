"""What the paper claims of the number of queries, and what was measured."""

from __future__ import annotations

from sibrepro import paper
from sibrepro.claim import AGREES, DIFFERS, FURTHER, OPEN, REMARK, Claim, points
from sibrepro.studies.query_size import plan
from sibrepro.studies.query_size.experiment import RESCALED
from sibrepro.studies.query_size.tables import difference

# the paper's own setting where it is measured, else ours
SETTINGS = {
    ("mini-imagenet", "conv4-128"): "mini-ImageNet, Conv‑4‑128",
    ("cifar-fs", "conv4-64"): "CIFAR-FS, Conv‑4‑64",
}


def claims() -> list[Claim]:
    """Too many queries in training: judged by testing with 15, with as many, and with steps of the trained length."""
    printed = paper.query_size().query("split == 'test'").set_index(["shots", "n"])["value"]
    shown = []
    for shots in (1, 5):
        fall = f"{printed[shots, 45] - printed[shots, 10]:+.1f}".replace("-", "−")
        theirs = f"{fall} points from $n=10$ to $n=45$ (mini-ImageNet)"
        claim = Claim(FURTHER, f"too many queries $n$ in training hurt, {shots}‑shot", "appendix, query size", theirs)
        for (dataset, backbone), where in SETTINGS.items():
            found, longer = plan.published(dataset), plan.published(dataset, RESCALED)
            few, many = (found.get((backbone, shots, n)) for n in (10, 45))
            same = longer.get((backbone, shots, 45))
            if few and many and same and claim.verdict == OPEN:
                fall, rest = (difference(few, records) for records in (many, same))
                hurts = fall.mean + fall.ci95 < 0
                note = f"the length of the step: given its trained length back, {points(rest)}" if hurts else "no fall"
                verdict = (REMARK if rest.mean > fall.mean / 2 else AGREES) if hurts else DIFFERS
                claim = claim.measured(f"{points(fall)} ({where})", verdict, [*few, *many, *same], note)
        shown.append(claim)
    return shown
