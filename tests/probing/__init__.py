"""The parts of `tests/probe.py`."""
