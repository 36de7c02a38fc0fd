"""Measure the shipped draft models: the tables of docs/drafts.md.

    python benchmarks/draft_figures.py [--steps 100000] [--seed 1]

Texts have seeds of their own, 256 tokens each; static chains of full blocks unless said otherwise.
"""

from __future__ import annotations

import argparse
import timeit

import numpy as np

from specsched.experiments.fits.calibrate_latent import figure6_distance, load_figures, request_variation
from specsched.experiments.fits.chain_walk import (
    BlockTable,
    Rounds,
    block_table,
    conditional_acceptance,
    survival_counts,
    walk_table,
)
from specsched.experiments.fits.figure5 import prefix_lengths
from specsched.policies.calibration import auroc, ece
from specsched.sim.acceptance import acceptance_names, load_acceptance
from specsched.sim.drafts import make_draft_model

OUTPUT = 256


def tables(profile: str, domain: str, steps: int, seed: int) -> tuple[BlockTable, BlockTable]:
    """Return the blocks of one domain with raw and with STS confidences, enough for about ``steps`` static rounds."""
    length = 1.0 + float(np.cumprod(load_acceptance(profile).domains[domain].conditional).sum())
    rows = int(np.ceil(steps * length / OUTPUT))
    spec = {"kind": "latent", "profile": profile}
    raw, sts = (make_draft_model({**spec, "confidence": kind}, seed) for kind in ("raw", "sts"))
    return block_table(raw, domain, rows, OUTPUT), block_table(sts, domain, rows, OUTPUT)


def visited(table: BlockTable, rounds: Rounds) -> np.ndarray:
    return table.confidence[rounds.row, rounds.start - 1]


def percents(values: list[float]) -> str:
    return " ".join(f"{100 * value:.1f}" for value in values)


def calibration_row(profile: str, domain: str, steps: int, seed: int) -> str:
    raw, sts = tables(profile, domain, steps, seed)
    gamma = raw.confidence.shape[-1]
    rounds = walk_table(raw, gamma)
    outcome = np.arange(gamma) < rounds.accepted[:, None]
    cells = []
    for confidence in (visited(raw, rounds), visited(sts, rounds)):
        survival = np.cumprod(confidence, axis=1)
        reached = [rounds.accepted >= j for j in range(gamma)]
        places = [j for j in (0, 2, 4, 6) if j < gamma]
        cells.append(
            (
                [auroc(survival[:, j], outcome[:, j]) for j in places],
                [ece(survival[:, j], outcome[:, j]) for j in places],
                [auroc(confidence[reached[j], j], outcome[reached[j], j]) for j in places],
                [ece(confidence[reached[j], j], outcome[reached[j], j]) for j in places],
            )
        )
    (auc_s, raw_s, auc_c, raw_c), (_, sts_s, _, sts_c) = cells
    return (
        f"| {domain} | {len(rounds.row)} | {' '.join(f'{x:.3f}' for x in auc_s)} | {percents(raw_s)} |"
        f" {percents(sts_s)} | {' '.join(f'{x:.3f}' for x in auc_c)} | {percents(raw_c)} | {percents(sts_c)} |"
    )


def acceptance_rows(profile: str, domain: str, steps: int, seed: int) -> list[str]:
    """Return published and measured conditional acceptance under static, threshold and static 3."""
    raw, sts = tables(profile, domain, steps, seed)
    gamma = raw.confidence.shape[-1]
    published = np.array(load_acceptance(profile).domains[domain].conditional)
    arms = {
        "static full": np.full(sts.acceptable.shape, gamma),
        "static 3": np.full(sts.acceptable.shape, min(3, gamma)),
    }
    for threshold in (0.5, 0.8):
        arms[f"threshold {threshold}"] = prefix_lengths(sts.confidence, threshold)
    lines = [f"| {domain} | published | {' '.join(f'{x:.3f}' for x in published)} | |"]
    for arm, lengths in arms.items():
        rounds = walk_table(sts, lengths)
        full = sts.acceptable[rounds.row, rounds.start - 1]
        shift = conditional_acceptance(full, gamma) - published
        counts = survival_counts(full, gamma)
        lines.append(f"| | {arm} | {' '.join(f'{x:+.3f}' for x in shift)} | {counts[-2]} |")
    return lines


def figure6_rows(steps: int, seed: int) -> list[str]:
    raw, _ = tables("dspark-qwen3-4b", "alpaca", steps, seed)
    rounds = walk_table(raw, 7)
    survival = np.cumprod(visited(raw, rounds), axis=1)
    lines = []
    for position, entry in load_figures().confidence["positions"].items():
        j = int(position) - 1
        gaps = figure6_distance(entry, survival[:, j], (rounds.accepted > j).astype(np.float64))
        published = np.array(entry["histogram_before"]) / np.sum(entry["histogram_before"])
        share = np.bincount(np.minimum((survival[:, j] * 20).astype(int), 19), minlength=20) / len(survival)
        lines.append(
            f"| {position} | {gaps['histogram']:.4f} | {0.5 * np.abs(share - published).sum():.3f} |"
            f" {100 * share[-1]:.1f} | {100 * published[-1]:.1f} | {gaps['reliability']:.4f} | {gaps['auc']:.4f} |"
        )
    return lines


def memory_line(steps: int, seed: int) -> str:
    raw, _ = tables("dspark-qwen3-4b", "chat", steps, seed)
    rounds = walk_table(raw, 7)
    order = np.lexsort((rounds.start, rounds.row))
    row, accepted = rounds.row[order], rounds.accepted[order].astype(np.float64)
    accepted -= (np.bincount(row, accepted) / np.bincount(row))[row]
    together = row[1:] == row[:-1]
    lag = float((accepted[1:] * accepted[:-1])[together].mean() / accepted.var())
    return (
        f"chat, static 7: CV of the accepted length between requests {request_variation(rounds):.3f},"
        f" lag-1 autocorrelation within requests {lag:.3f}"
    )


def random_numbers_line(seed: int, requests: int = 2000) -> str:
    """Return how often the outcome of a text position differs between two depths, for shared and for foreign texts."""
    table = {}
    for text in (seed, seed + 1):
        model = make_draft_model({"kind": "latent", "profile": "dspark-qwen3-4b", "gamma": 7}, text)
        accepted = block_table(model, "chat", requests, OUTPUT).acceptable
        # A first draft is accepted iff at least one is: outcome at (t, 1). Depth 2 is seen where depth 1 passes.
        table[text] = accepted
    first = table[seed][:, 1:] >= 1
    seen = table[seed][:, :-1] >= 1
    second = table[seed][:, :-1] >= 2
    foreign = table[seed + 1][:, 1:] >= 1
    return (
        f"outcome at depth 1 and 2 of one text position differ in {100 * np.mean((first != second)[seen]):.1f} %,"
        f" of two texts in {100 * np.mean((foreign != second)[seen]):.1f} % of {int(seen.sum())} cases"
    )


def speed_line() -> str:
    model = make_draft_model({"kind": "latent", "profile": "dspark-qwen3-4b", "gamma": 7}, 0)
    best = min(timeit.repeat(lambda: model.blocks(3, "chat", 1, 128), number=1000, repeat=7)) / 1000
    return f"blocks of 128 starts, gamma 7: {1e6 * best:.0f} microseconds"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for name in acceptance_names():
        print(f"\n{name}, STS temperatures {load_acceptance(name).temperatures}\n")
        for domain in load_acceptance(name).domains:
            print(calibration_row(name, domain, options.steps, options.seed))
    print("\nShift of conditional acceptance\n")
    for domain in ("math", "code", "chat"):
        print("\n".join(acceptance_rows("dspark-qwen3-4b", domain, options.steps, options.seed)))
    print("\nFigure 6\n")
    print("\n".join(figure6_rows(options.steps, options.seed)))
    print(memory_line(options.steps, options.seed))
    print(random_numbers_line(options.seed))
    print(speed_line())


if __name__ == "__main__":
    main()
