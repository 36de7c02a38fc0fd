"""Classify all 256 length maps of the smallest two-row world by the rules and by the exact law.

    python benchmarks/length_maps.py [--check]

Two rows, one draft each, tokens A and B. Rewrites the table in docs/lossless.md, or with ``--check`` compares it and
exits 1 where it differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from fractions import Fraction as F
from pathlib import Path

from specsched.policies.lossless.exact import law
from specsched.policies.lossless.length_maps import MapPolicy, all_maps, revealing_world, row_wise, stopping_set

DOC = Path(__file__).resolve().parents[1] / "docs" / "lossless.md"
BEGIN, END = "<!-- length maps -->\n", "<!-- end of length maps -->\n"

Pair = tuple[F, F]
LAWS: tuple[tuple[Pair, Pair], ...] = (
    # (p_d(A) by row, p_t(A) by row)
    ((F(2, 5), F(2, 5)), (F(7, 10), F(7, 10))),
    ((F(3, 5), F(3, 5)), (F(1, 4), F(1, 4))),
    ((F(3, 7), F(2, 3)), (F(5, 8), F(1, 5))),
    ((F(2, 5), F(2, 5)), (F(2, 5), F(2, 5))),
    ((F(1, 2), F(1, 3)), (F(7, 10), F(7, 10))),
    ((F(1, 2), F(1, 2)), (F(7, 10), F(7, 10))),
    ((F(2, 5), F(2, 5)), (F(1), F(1))),
)
HEADER = (
    "| p_d(A), rows 1 and 2 | p_t(A) | marginals right by law | of these row-wise | joint right by law | of these "
    "stopping sets | joint right, rule undecided |"
)


def counts(draft: Pair, target: Pair) -> tuple[int, ...]:
    """Count maps: marginals right, of these row-wise, joint right, of these stopping sets, and the others of these."""
    marginal = blind = joint = stops = 0
    p_t, p_d = (tuple(((p, 1 - p),) for p in by_row) for by_row in (target, draft))
    for mapping in all_maps((1, 1), 2):
        found = law(revealing_world(mapping, p_t, p_d), MapPolicy(mapping))
        if found.marginal_tv == 0:
            marginal += 1
            blind += row_wise(mapping) is None
        if found.joint_tv == 0:
            joint += 1
            stops += stopping_set(mapping) is None
    return marginal, blind, joint, stops, joint - stops


def table() -> str:
    """Return the table as Markdown."""
    lines = [HEADER, "|---|---|---|---|---|---|---|"]
    for draft, target in LAWS:
        cells = [", ".join(map(str, draft)), ", ".join(map(str, target)), *map(str, counts(draft, target))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def replaced(text: str, begin: str, end: str, table: str) -> str:
    """Return the page with a table between two markers."""
    before, found, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise SystemExit(
            f"error: {DOC.name} lacks `{begin.strip()}` .. `{end.strip()}`; put both on lines of their own"
        )
    return before + begin + table + end + after


def finish(text: str, fresh: str, check: bool) -> int:
    """Write the page, or only say whether it is up to date; return the exit code."""
    if not check:
        DOC.write_text(fresh, encoding="utf-8")
        return 0
    print("up to date" if fresh == text else f"{DOC.name}: a table differs; run without --check")
    return int(fresh != text)


def rewritten(text: str) -> str:
    """Return the page with a fresh table."""
    return replaced(text, BEGIN, END, table())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args(arguments)
    text = DOC.read_text(encoding="utf-8")
    return finish(text, rewritten(text), options.check)


if __name__ == "__main__":
    sys.exit(main())
