"""The parts of `tests/probe.py`, which tries to break the project.

kills         kill stages of the project and start them again
readers       feed damaged files to everything that reads files; `damage` makes them
surroundings  let stages run on a full disk, as another user, among stray files
world         the scratch folder in which all this happens
table         what was tried, what held and what broke
"""
