"""Synthetic information bottleneck (SIB): the model and the tools behind the notebooks."""

__version__ = "0.2.0"
