"""Which check catches each broken scheduler and decoder, and what the project's own schedulers passed.

    python benchmarks/mutation_table.py [--check] [--examples N] [--workers N]

The unmutated schedulers run first: if one of them is accused, nothing is written. Rewrites the tables in
docs/lossless.md, or with ``--check`` compares them and exits 1 where they differ. Everything is seeded; the worlds are
those of `specsched check`. About six minutes on two cores.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path

from length_maps import DOC, finish, replaced

from specsched.policies.lossless.checker import GAMMA, Counterexample, Report, Tally, check, search, shares, sizes_for
from specsched.policies.lossless.decoders import BROKEN_DECODERS
from specsched.policies.lossless.rules import RuleReport, probe
from specsched.policies.threshold import Threshold

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the mutants live in the tests

from tests.policies.lossless.broken import BROKEN, SAFE  # noqa: E402
from tests.policies.lossless.test_broken import WITNESSES  # noqa: E402

MUTANTS = ("<!-- mutation table -->\n", "<!-- end of mutation table -->\n")
PASSED = ("<!-- safe schedulers -->\n", "<!-- end of safe schedulers -->\n")

SHIPPED = (
    "static 1",
    "static 2",
    "threshold on c",
    "threshold on a",
    "greedy early stop",
    *(name for name in SAFE if name.startswith("async_topk")),
)
HISTORIES = 1000
"""Histories on which the rules are tried for each of these."""
UNDER = Threshold(0.5)
"""The scheduler that broken decoders are run under: safe, and at times verifies nothing."""


def report(case: tuple[str, int]) -> Report:
    """Check a broken scheduler or a safe one."""
    name, examples = case
    if name in BROKEN:
        return check(BROKEN[name].policy, examples, own_token=BROKEN[name].own_token)
    return check(SAFE[name], examples)


def decoded(case: tuple[str, int]) -> Counterexample | None:
    """Search under a broken decoder."""
    name, examples = case
    return search(UNDER, shares(sizes_for(UNDER), examples), BROKEN_DECODERS[name]).counterexample


def unmutated(pool: Executor, examples: int) -> Mapping[str, Report]:
    """Check the project's schedulers and the right way of doing what each mutant does wrong."""
    names = dict.fromkeys((*SHIPPED, *(witness.instead for witness in WITNESSES.values())))
    found = dict(zip(names, pool.map(report, [(name, examples) for name in names]), strict=True))
    accused = [name for name, each in found.items() if each.verdict != "lossless"]
    if accused:
        raise SystemExit(f"error: not lossless although unmutated: {', '.join(accused)}")
    return found


def ruled(rules: RuleReport) -> str:
    """Return what the rules say, with the histories it took."""
    if not rules.applicable:
        return "not applicable"
    if rules.row_wise is not None:
        return f"row-wise, {rules.scripts}"
    return "undecided" if rules.stopping_set is not None else "passes"


def by_law(found: Counterexample | None) -> list[str]:
    """Return the cells of the exact law: its verdict, worlds tried, size of the smallest world, distance."""
    if found is None:
        return ["**not caught**", "", "", ""]
    world = found.world
    size = f"{len(world.rows)}, {world.vocabulary}, {world.gamma}, {world.tokens}"
    return [found.law.verdict, str(found.examples), size, str(found.law.joint_tv)]


def mutation_table(pool: Executor, examples: int) -> str:
    """Return the table of mutants as Markdown."""
    rows = [
        ["broken scheduler", "rules, after histories", "law", "after worlds", "rows, vocabulary, gamma, tokens", "TV"]
    ]
    reports = pool.map(report, [(name, examples) for name in BROKEN])
    rows += [
        [name, ruled(each.rules), *by_law(each.counterexample)] for name, each in zip(BROKEN, reports, strict=True)
    ]
    decoders = pool.map(decoded, [(name, examples) for name in BROKEN_DECODERS])
    rows += [[f"decoder: {name}", "-", *by_law(each)] for name, each in zip(BROKEN_DECODERS, decoders, strict=True)]
    return markdown(rows)


def histories(name: str) -> RuleReport:
    """Try the rules on many more histories than `check` does."""
    found = probe(SAFE[name], GAMMA, scripts=HISTORIES)
    if found.stopping_set is not None:
        raise SystemExit(f"error: {name} breaks the stopping-set rule although unmutated: {found.stopping_set}")
    return found


def safe_table(pool: Executor, found: Mapping[str, Report]) -> str:
    """Return the tables of what the project's schedulers passed as Markdown."""
    shipped = [found[name] for name in SHIPPED]
    sizes = [["rows", "vocabulary", "gamma", "worlds for each scheduler"]]
    for tallies in zip(*(each.tallies for each in shipped), strict=True):
        size = tallies[0]
        worlds = sorted({tally.worlds for tally in tallies})
        counted = " to ".join(map(str, dict.fromkeys((worlds[0], worlds[-1]))))
        sizes.append([str(size.rows), str(size.vocabulary), str(size.gamma), counted])
    rows = [
        [
            "scheduler",
            "one row: worlds (varied, split)",
            "two rows: worlds (varied, split)",
            "by rule: histories",
        ]
    ]
    for name, each, ruled in zip(SHIPPED, shipped, pool.map(histories, SHIPPED), strict=True):
        cells = [counts(tally for tally in each.tallies if tally.rows == most) for most in (1, 2)]
        rows.append([name, *cells, str(ruled.scripts)])
    return markdown(sizes) + "\n" + markdown(rows)


def counts(tallies: Iterable[Tally]) -> str:
    """Return worlds enumerated and those of them that a pass is worth something in."""
    worlds, varied, split = (
        sum(each) for each in zip(*((tally.worlds, tally.varied, tally.split) for tally in tallies), strict=True)
    )
    return f"{worlds} ({varied}, {split})"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return a table, its first row being the head."""
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--examples", type=int, default=3000, help="worlds for each scheduler")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    with ProcessPoolExecutor(options.workers) as pool:
        passed = unmutated(pool, options.examples)
        tables = [(PASSED, safe_table(pool, passed)), (MUTANTS, mutation_table(pool, options.examples))]
    text = fresh = DOC.read_text(encoding="utf-8")
    for (begin, end), table in tables:
        fresh = replaced(fresh, begin, end, table)
    return finish(text, fresh, options.check)


if __name__ == "__main__":
    sys.exit(main())
