"""The paper's claims about the ELBO and the information bottleneck, and how they fare on random finite worlds."""

from __future__ import annotations

from sibrepro.claim import AGREES, DIFFERS, REMARK, THEORY, Claim
from sibrepro.facts import Record
from sibrepro.studies.theory import worlds
from sibrepro.studies.theory.worlds import ElboParams

EVIDENCE = Claim(THEORY, r"$\log p(\mathcal D)$ = ELBO + the KLs to the true posteriors", "eq. (vae)", "a bound")
DESCENT = Claim(
    THEORY, r"with the true $\partial\ell/\partial\hat y$ for $\xi$, eq. (sib) descends the KL", "section 3", "holds"
)
THEOREM_1 = Claim(
    THEORY,
    r"the objective is bounded below by $I_q(w;d\mid t)+H_q(d\mid w,t)$",
    "Theorem 1",
    "holds, and is tight",
)
THEOREM_2 = Claim(THEORY, r"$\lvert\mathrm{gen}(q)\rvert\le\sqrt{2\sigma^2I_q(w;d\mid t)/n}$", "Theorem 2", "holds")
COROLLARY = Claim(THEORY, "its corollary, a bound on the objective", "Corollary", "holds")


def claims() -> list[Claim]:
    """Return all claims with their verdicts.

    The first two are identities, which notebook 01 and the tests check wherever they run, so they need no published
    run. The theorems and the corollary are "not measured" until the run of random worlds is published.
    """
    identities = [
        EVIDENCE.measured("equality to 1e-10, Gaussian and other $q$", AGREES, []),
        DESCENT.measured(
            "equality to 1e-8, noise and KL term included", AGREES, [], "with 1/n to a tempered posterior"
        ),
    ]
    record = worlds.THEORY.published(ElboParams())
    if record is None:
        return [*identities, THEOREM_1, THEOREM_2, COROLLARY]
    return [*identities, _theorem_1(record), _theorem_2(record), _corollary(record)]


def _theorem_1(record: Record) -> Claim:
    """Judge Theorem 1.

    It agrees if the bound holds in every world, is tight in aligned worlds and is more than a constant. If it is a
    constant, the theorem is true but gives nothing to optimise.
    """
    verdict, found, note = AGREES, "true", ""
    if record.metrics["constant_error"] < 1e-10:
        verdict = REMARK
        note = r"the right side equals $H_q(d\mid t)$ whatever $q(w\mid d,t)$ is: nothing to optimise"
    holds = record.metrics["bound_slack"] > 0 and record.metrics["tightness_error"] < 1e-10
    if not holds:
        verdict, found = DIFFERS, "violated"
    return THEOREM_1.measured(f"{found} in all of {_worlds(record)}", verdict, [record], note)


def _theorem_2(record: Record) -> Claim:
    """Judge Theorem 2.

    It agrees if no gap exceeds its bound and every step of the paper's proof holds in all worlds.
    """
    largest, fails = record.metrics["largest_ratio"], record.metrics["proof_step_fails"]
    verdict, note = AGREES, ""
    if fails > 0:
        verdict = REMARK
        note = f"a step of the proof fails in {fails:.1%} of them; the notebook repairs it"
    if largest > 1:
        verdict = DIFFERS
    return THEOREM_2.measured(f"at most {largest:.2f} of the bound in {_worlds(record)}", verdict, [record], note)


def _corollary(record: Record) -> Claim:
    """Judge the corollary.

    It never simply agrees, because notebook 01 finds densities that violate it. It differs if finite data violate it,
    under either reading of eq. (lik).
    """
    slack = min(record.metrics["corollary_with_n_slack"], record.metrics["corollary_printed_slack"])
    ours = "true for finite data, even with $n\\,\\mathbb E L$; violated by densities"
    note = "a loss may be negative, and the $n$ is missing"
    return COROLLARY.measured(ours, REMARK if slack > -1e-10 else DIFFERS, [record], note)


def _worlds(record: Record) -> str:
    """Return how many worlds were tried, for reading."""
    return f"{record.params['worlds']:,} random worlds"
