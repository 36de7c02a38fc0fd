"""docs/lag_study.md: the numbers in its sentences are computed again from the committed results."""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl
import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
FLAT = " ".join((DOCS / "lag_study.md").read_text(encoding="utf-8").split())
BURSTS, SHORT = "lag_bursts", "lag_short_answers"
THROUGHPUT, P10, INTERACTIVITY, PRICED_BY_MEAN = 1, 2, 3, 11
STALL_THROUGHPUT, STALL_INTERACTIVITY, ORACLE_THROUGHPUT, ORACLE_P10, PRICES = 5, 6, 7, 8, 10
SHORT_INTERACTIVITY, SHORT_BY_MEAN = 2, 5
LAGS = (1, 2, 4, 8)
Change = tuple[float, float, float]


def says(*parts: str) -> bool:
    """Whether the page holds each of these, however its lines break."""
    return all(part in FLAT for part in parts)


def changes(study: str, effect: int, x: str = "", panel: str = "", line: str = "") -> list[Change]:
    """Changes of an effect in per cent with their intervals, narrowed to a column, panels that begin so, a row."""
    with (DOCS / "lag_study" / f"{study}.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if int(row["effect"]) == effect]
    found = [
        tuple(100 * (float(row[key]) - 1) for key in ("ratio", "low", "high"))
        for row in rows
        if x in ("", row["x"]) and row["panel"].startswith(panel) and line in ("", row["line"])
    ]
    assert found, (study, effect, x, panel, line)
    return found  # type: ignore[return-value]


def span(*where: object) -> tuple[float, float]:
    """The smallest and the largest change."""
    means = [mean for mean, _, _ in changes(*where)]  # type: ignore[arg-type]
    return min(means), max(means)


def lost(*where: object, digits: int = 1) -> str:
    """The smallest and the largest loss, as the page writes a range of losses."""
    low, high = span(*where)
    return f"{-high:.{digits}f} to {-low:.{digits}f} %"


def test_lag_2_against_lag_1() -> None:
    full, below = span(BURSTS, THROUGHPUT, "lag-2"), span(BURSTS, INTERACTIVITY, "lag-2")
    assert says(
        f"changes throughput under overload by {full[0]:+.2f} to {full[1]:+.2f} % in all ten combinations",
        f"interactivity changes by {below[0]:+.2f} to {below[1]:+.2f} %.",
    )
    all_ten = changes(BURSTS, THROUGHPUT, "lag-2")
    ((apart, _, _),) = [each for each in all_ten if not each[1] <= 0 <= each[2]]
    assert len(all_ten) == 10
    assert says(f"one interval of ten leaves zero out ({apart:+.2f} %)")


def test_lag_8_shows_bursts() -> None:
    def at_8(panel: str, line: str = "") -> str:
        return f"{-span(BURSTS, INTERACTIVITY, 'lag-8', panel, line)[0]:.2f} %"

    steady, gaps, waves = (at_8("h100", line) for line in ("steady", "cv 10", "waves"))
    assert says(
        f"falls by {steady} in steady traffic, by {gaps} with CV 10 and by {waves} with waves of 64 joins",
        f"the same waves cost {at_8('b300', 'waves')}, and no pattern more than {at_8('b300')}",
    )


def test_short_answers() -> None:
    assert says(
        f"lag 2 costs {lost(SHORT, SHORT_INTERACTIVITY, 'lag-2')} of interactivity, "
        f"lag 4 {lost(SHORT, SHORT_INTERACTIVITY, 'lag-4')}, "
        f"and lag 8 {lost(SHORT, SHORT_INTERACTIVITY, 'lag-8', 'b300')} on the B300 profile "
        f"and {lost(SHORT, SHORT_INTERACTIVITY, 'lag-8', 'h100', digits=0)} on the H100 one"
    )
    steady, waves = (span(SHORT, SHORT_INTERACTIVITY, "lag-2", "h100", line)[0] for line in ("steady", "waves"))
    assert says("at lag 2, on the H100 profile, less than half as much")
    assert waves / 2 < steady < 0


def test_the_price_of_joins() -> None:
    least, most = span(SHORT, SHORT_BY_MEAN, "lag-8")
    two, chat = span(SHORT, SHORT_BY_MEAN, "lag-2")[0], span(BURSTS, PRICED_BY_MEAN, "lag-8")[0]
    assert says(
        f"lag 8 with short answers costs {-most:.1f} to {-least:.1f} % and lag 2 at most {-two:.1f} %,",
        f"with chat answers lag 8 costs at most {-chat:.1f} %",
    )
    eight, short = (span(BURSTS, PRICES, "none", "", f"lag-{lag}")[0] for lag in (8, 2))
    assert says(f"it costs up to {-eight:.1f} % of interactivity at lag 8 and {-short:.1f} % at lag 2")


def test_fresh_confidences_and_their_stall() -> None:
    free = max(span(BURSTS, effect, "lag-0-free")[1] for effect in (THROUGHPUT, INTERACTIVITY, PRICED_BY_MEAN))
    short = max(span(SHORT, effect, "lag-0-free")[1] for effect in (THROUGHPUT, SHORT_INTERACTIVITY, SHORT_BY_MEAN))
    assert says(f"would gain up to {free:.2f} %** over lag 1", f"up to {short:.1f} % with short ones")
    assert says(
        f"costs {lost(BURSTS, STALL_THROUGHPUT)} of throughput and {lost(BURSTS, STALL_INTERACTIVITY)} of interactivity"
    )
    ahead, behind = (span(BURSTS, INTERACTIVITY, arm, "h100", "waves")[0] for arm in ("lag-0-free", "lag-2"))
    paid = span(BURSTS, STALL_INTERACTIVITY, "waves", "", "h100 x0.8")[0]
    gain, taken = ahead - behind, ahead - paid
    assert says(
        f"below about {0.5 * gain / taken:.2f} ms (H100, waves: free of the stall {gain:.2f} % ahead, "
        f"and 0.5 ms take {taken:.1f} %)"
    )


def test_the_slowest_tenth_and_the_oracle() -> None:
    waves, gaps = (span(BURSTS, P10, "lag-8", "h100", line)[0] for line in ("waves", "cv 10"))
    assert says(f"At lag 8 the H100 profile loses {-waves:.1f} % with waves and {-gaps:.1f} % with CV 10")
    assert says(
        f"All lags are {lost(BURSTS, ORACLE_THROUGHPUT, digits=0)} of throughput "
        f"and {lost(BURSTS, ORACLE_P10, digits=0)} of p10 behind an oracle"
    )
    young = [each for lag in (2, 3, 4) for each in changes(BURSTS, P10, f"lag-{lag}")]
    assert sum(low <= 0 <= high for _, low, high in young) > len(young) / 2


def test_how_many_intervals() -> None:
    tables = {BURSTS: 11, SHORT: 5}
    found = [each for study, last in tables.items() for effect in range(1, last + 1) for each in changes(study, effect)]
    assert says("over five hundred intervals")
    assert sum(low < high for _, low, high in found) > 500


TRANSIENT = pl.read_csv(DOCS / "lag_study" / "lag_transient-transient.csv")


def steps(machine: str, joins: str, arm: str, quantity: str) -> dict[int, float]:
    """Means by step after the wave."""
    keys = {"machine": machine, "joins": joins, "arm": arm, "quantity": quantity}
    found = TRANSIENT.filter(*(pl.col(name) == value for name, value in keys.items()))
    return dict(found.select("offset", "mean").iter_rows())


def more_than_fresh(machine: str, joins: str, quantity: str) -> tuple[float, float]:
    """The smallest and the largest change against fresh confidences while the transient lasts, over lags, per cent."""
    fresh = steps(machine, joins, "lag-0", quantity)
    found = []
    for lag in LAGS:
        stale = steps(machine, joins, f"lag-{lag}", quantity)
        during = [step for step in fresh if 1 <= step <= lag]
        found.append(100 * (sum(stale[step] for step in during) / sum(fresh[step] for step in during) - 1))
    return min(found), max(found)


def test_what_an_optimistic_budget_does_after_a_wave() -> None:
    tokens, longer = (more_than_fresh("h100", "optimistic", name) for name in ("batch_tokens", "step_ms"))
    least, most = more_than_fresh("h100", "optimistic", "tokens_per_s")
    assert says(
        f"asks for {tokens[0]:.0f} to {tokens[1]:.0f} % more batch tokens in those steps",
        f"They last {longer[0]:.0f} to {longer[1]:.0f} % longer, and {-most:.0f} to {-least:.0f} % fewer tokens",
    )
    on_shelf = more_than_fresh("b300", "optimistic", "batch_tokens")
    least, most = more_than_fresh("b300", "optimistic", "tokens_per_s")
    assert says(f"{on_shelf[0]:.0f} to {on_shelf[1]:.0f} % more tokens, {-most:.1f} to {-least:.0f} % fewer a second")


def test_what_other_prices_do_after_a_wave() -> None:
    tokens, (least, most) = (more_than_fresh("h100", "mean", name) for name in ("batch_tokens", "tokens_per_s"))
    assert says(
        f"it is {tokens[0]:.0f} to {tokens[1]:.0f} % more tokens and {-most:.0f} to {-least:.1f} % fewer tokens a"
    )
    least, most = more_than_fresh("h100", "none", "tokens_per_s")
    assert says(f"halves the batch and loses {-most:.0f} to {-least:.0f} %")
    assert more_than_fresh("h100", "none", "batch_tokens") == pytest.approx((-50, -50), abs=5)


def test_how_long_the_transient_lasts() -> None:
    fresh = steps("h100", "optimistic", "lag-0", "batch_tokens")
    after = []
    for lag in (2, 4, 8):
        stale = steps("h100", "optimistic", f"lag-{lag}", "batch_tokens")
        ratio = {step: stale[step] / fresh[step] for step in fresh}
        assert min(ratio[step] for step in ratio if 1 <= step <= lag) > 1.4
        after += [ratio[step] for step in (lag + 1, lag + 2) if step in ratio]
        assert max(ratio[step] for step in ratio if step > lag + 2) < 1.05
    assert 1.05 < max(after) < 1.1
    assert says("still up to a tenth larger")


def test_only_the_oracle_pads() -> None:
    padding = TRANSIENT.filter(pl.col("quantity") == "padding")
    lags = padding.filter(pl.col("arm") != "oracle")["mean"]
    assert (lags == 0).all()
    assert 0 < padding.filter(pl.col("arm") == "oracle")["mean"].max() < 10  # type: ignore[operator]
    assert says("Padding is zero throughout for every lag")
