"""The theory of the paper as code: the ELBO (`bayes`), Theorem 1 (`bottleneck`) and Theorem 2 (`generalisation`)."""
