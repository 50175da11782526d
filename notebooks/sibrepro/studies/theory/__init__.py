"""The study of notebook 01: the ELBO and the information bottleneck."""
