"""What the paper claims of the ELBO and the information bottleneck, and what random worlds say."""

from __future__ import annotations

from sibrepro.claim import AGREES, DIFFERS, REMARK, THEORY, Claim
from sibrepro.studies.theory import worlds as study
from sibrepro.studies.theory.worlds import ElboParams


def claims() -> list[Claim]:
    """The first two are identities, and need no run."""
    evidence = Claim(THEORY, r"$\log p(\mathcal D)$ = ELBO + the KLs to the true posteriors", "eq. (vae)", "a bound")
    evidence = evidence.measured("equality to 1e-10, Gaussian and other $q$", AGREES, [])
    text = r"with the true $\partial\ell/\partial\hat y$ for $\xi$, eq. (sib) descends the KL"
    ours, note = "equality to 1e-8, noise and KL term included", "with 1/n to a tempered posterior"
    identities = [evidence, Claim(THEORY, text, "section 3", "holds").measured(ours, AGREES, [], note)]
    bound = r"the objective is bounded below by $I_q(w;d\mid t)+H_q(d\mid w,t)$"
    first = Claim(THEORY, bound, "Theorem 1", "holds, and is tight")
    second = Claim(THEORY, r"$\lvert\mathrm{gen}(q)\rvert\le\sqrt{2\sigma^2I_q(w;d\mid t)/n}$", "Theorem 2", "holds")
    corollary = Claim(THEORY, "its corollary, a bound on the objective", "Corollary", "holds")
    record = study.THEORY.published(ElboParams())
    if record is None:
        return [*identities, first, second, corollary]
    m, worlds = record.metrics, f"{record.params['worlds']:,} random worlds"

    holds = m["bound_slack"] > 0 and m["tightness_error"] < 1e-10
    constant = m["constant_error"] < 1e-10
    note = r"the right side equals $H_q(d\mid t)$ whatever $q(w\mid d,t)$ is: nothing to optimise" if constant else ""
    verdict = DIFFERS if not holds else REMARK if constant else AGREES
    first = first.measured(f"{'true' if holds else 'violated'} in all of {worlds}", verdict, [record], note)

    largest, fails = m["largest_ratio"], m["proof_step_fails"]
    note = f"a step of the proof fails in {fails:.1%} of them; the notebook repairs it" if fails > 0 else ""
    verdict = DIFFERS if largest > 1 else REMARK if fails > 0 else AGREES
    second = second.measured(f"at most {largest:.2f} of the bound in {worlds}", verdict, [record], note)

    finite = min(m["corollary_with_n_slack"], m["corollary_printed_slack"]) > -1e-10
    ours = "true for finite data, even with $n\\,\\mathbb E L$; violated by densities"
    note = "a loss may be negative, and the $n$ is missing"
    return [*identities, first, second, corollary.measured(ours, REMARK if finite else DIFFERS, [record], note)]
