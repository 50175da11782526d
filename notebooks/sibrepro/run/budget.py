"""Limit the size of the published results, so that the repository stays easy to clone."""

from __future__ import annotations

from sibrepro import paths

LIMIT = 100_000_000  # bytes of results/ without results/local/
SHOWN = 5  # how many of the largest files an error names


def check() -> None:
    """Raise a ValueError that names the largest files if the published results exceed the limit."""
    local = paths.published() / "local"
    files = [file for file in paths.published().rglob("*") if file.is_file() and not file.is_relative_to(local)]
    sizes = {paths.relative(file): file.stat().st_size for file in files}
    total = sum(sizes.values())
    if total > LIMIT:
        largest = sorted(sizes.items(), key=lambda item: -item[1])[:SHOWN]
        named = "\n".join(f"  {size / 1e6:6.1f} MB  {name}" for name, size in largest)
        raise ValueError(
            f"the published results take {total / 1e6:.1f} MB, and the limit is {LIMIT / 1e6:.0f} MB. The largest "
            f"files are\n{named}\nDo not publish arrays that no table or figure needs: name them in the `kept_here` of "
            "their experiment"
        )
