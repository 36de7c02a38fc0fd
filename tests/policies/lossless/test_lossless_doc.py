"""docs/lossless.md: every number in it is computed again, and its examples run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from specsched.policies import build_policy
from specsched.policies.lossless.exact import ExactLaw, Law, law
from specsched.policies.lossless.length_maps import LengthMap, MapPolicy, revealing_world
from specsched.policies.lossless.worlds import World, appendix_a
from specsched.policies.retrospective import Retrospective
from specsched.policies.static import Static
from specsched.policies.threshold import Threshold

from .broken import AcceptedPrefix, hillis_steele
from .random_worlds import coupled_rows

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "lossless.md").read_text(encoding="utf-8")
PROSE = re.sub(r"(<!-- ([a-z ]+) -->).*?(<!-- end of \2 -->)", r"\1\n\3", TEXT, flags=re.DOTALL)
BIASED = Retrospective()
A, B = 0, 1


def says(*sentences: str) -> bool:
    """Whether the page holds each of these, however its lines break."""
    flat = " ".join(TEXT.split())
    return all(" ".join(each.split()) in flat for each in sentences)


def one_row() -> World:
    """Appendix A with a single draft."""
    world = appendix_a()
    return replace(world, gamma=1, confidence=(((0.8,),),), seconds=(1.0, 2.0))


def reciprocal() -> ExactLaw:
    return law(coupled_rows(), MapPolicy(LengthMap.of(lambda x: (int(x[1] == (A,)), int(x[0] == (A,))), (1, 1), 2)))


def of_first(tokens: Law, first: int) -> Fraction:
    return sum((mass for each, mass in tokens.items() if each[0] == first), Fraction(0))


P_T, P_D = appendix_a().target[0][0], appendix_a().draft[0][0]
ACCEPT = [min(Fraction(1), t / d) for t, d in zip(P_T, P_D, strict=True)]
MADE_BY = [[ACCEPT[A], 1 - ACCEPT[A]], [1 - ACCEPT[B], ACCEPT[B]]]
GAIN = min(P_D[A] * P_T[B], P_D[B] * P_T[A])


def test_appendix_a() -> None:
    found = [law(appendix_a(tokens), BIASED) for tokens in (1, 2, 3)]
    first = found[0].rows[0]
    assert says(
        f"A leaves with probability {P_D[A]} + {P_D[B] * P_T[A]} = **{first[A,]}** instead of {P_T[A]}, "
        f"B with **{first[B,]}** instead of {P_T[B]}",
        "The total-variation distance is {} for the first token, {} for the first two, {} for the first three".format(
            *(each.marginal_tv for each in found)
        ),
    )
    assert first[A,] == P_D[A] + P_D[B] * P_T[A] == P_T[A] + GAIN


def test_the_rates_of_appendix_a() -> None:
    world, speed = appendix_a(), (1.0, 0.5, 0.45)
    assert [1 / each for each in world.seconds] == pytest.approx(speed)
    for token, name in ((A, "A"), (B, "B")):
        survival = np.multiply.accumulate(world.confidences(0, 0, (token, A)))
        theta = (1.0 + np.concatenate(([0.0], np.cumsum(survival)))) * speed
        rates = ", ".join(f"{each:.4g}" for each in theta)
        verified = int(np.argmax(theta))
        assert f"| {name} | {P_D[token]} | 0.8, {survival[1]:.2g} | {rates} | {verified} |" in TEXT


def test_the_counterexample_is_what_the_command_prints() -> None:
    shown = TEXT.split("<!-- counterexample -->\n```text\n")[1].split("```\n<!-- end of counterexample -->")[0]
    command = [
        sys.executable,
        "-c",
        "from specsched.experiments.cli.main import main; main()",
        "check",
        "retrospective",
    ]
    done = subprocess.run(command, env=os.environ | {"COLUMNS": "170"}, capture_output=True, text=True, check=False)
    printed = {line.strip() for line in done.stdout.splitlines()}
    assert done.returncode == 1
    assert [line for line in shown.splitlines() if line and line not in printed] == []


def test_early_stop_and_lag_restore_it() -> None:
    for spec in ({"kind": "greedy_early_stop"}, {"kind": "async_topk", "lag": 1}, {"kind": "async_topk", "lag": 2}):
        found = law(appendix_a(3), build_policy(spec))
        assert found.verdict == "lossless"
        assert of_first(found.rows[0], A) == P_T[A]


def test_a_perfect_drafter_does_not_help() -> None:
    world = appendix_a()
    assert law(replace(world, target=world.draft), BIASED).verdict == "marginal"


def test_the_oracle() -> None:
    found = law(one_row(), AcceptedPrefix()).rows[0][A,]
    assert found == P_D[A] + P_D[B] * (1 - ACCEPT[B]) * P_T[A]
    assert says(f"{P_D[B]} * {1 - ACCEPT[B]} * {P_T[A]} (B drafted, would be rejected, bonus instead) = **{found}**")


def test_steps_must_not_be_conditioned_on_what_they_gave() -> None:
    assert law(one_row(), Static(1)).verdict == "lossless"
    accepted = [d * a for d, a in zip(P_D, ACCEPT, strict=True)]
    share = accepted[A] / sum(accepted)
    assert share != P_T[A]
    assert says(f"({P_D[A]}) / ({P_D[A]} + {P_D[B]} * {ACCEPT[B]}) = {share}")


def test_joint_against_marginal() -> None:
    found = reciprocal()
    assert (found.verdict, found.marginal_tv) == ("joint", 0)
    both_b = found.joint[(B,), (B,)]
    parts = []
    for one, two in product((A, B), repeat=2):
        mine = MADE_BY[one][B] if two == A else P_T[B]
        yours = MADE_BY[two][B] if one == A else P_T[B]
        parts.append(mine * yours)
    assert sum(parts) / 4 == both_b == P_T[B] ** 2 + GAIN**2
    assert says(
        f"1/4 * ({parts[1]} + {parts[2]} + {parts[3]}) = **{both_b}** instead of **{P_T[B] ** 2}**",
        f"{both_b} = {P_T[B] ** 2} + ({GAIN})^2",
        f"`k(A, A)` = {MADE_BY[A][A]}, `k(B, A)` = {MADE_BY[B][A]}, `k(B, B)` = {MADE_BY[B][B]}",
    )
    assert parts[0] == 0


def test_reading_its_own_token_makes_a_threshold_select() -> None:
    """In this world a draft's confidence is 1 for A and 0 for B."""
    found = law(coupled_rows(), Threshold(0.5))
    assert found.verdict == "marginal"
    assert says(f"verifying A alone gives A {of_first(found.rows[0], A)} above")


def test_a_parallel_float32_product_rises() -> None:
    values = [0.75591081, 0.97523183, 0.57207978, 1.0]
    assert says(", ".join(f"{each:g}" if each == 1 else f"{each}" for each in values))
    parallel = hillis_steele(np.array([values]))[0]
    assert parallel[2] < parallel[3]
    sequential = np.multiply.accumulate(np.array(values, np.float32))
    assert sequential[2] >= sequential[3]


def test_no_other_fraction_is_quoted() -> None:
    ours = law(appendix_a(), BIASED).rows[0]
    computed = {*P_T, *P_D, *ACCEPT, *(1 - each for each in ACCEPT), *(d * t for d in P_D for t in P_T)}
    computed |= {*ours.values(), *(law(appendix_a(tokens), BIASED).marginal_tv for tokens in (2, 3))}
    computed |= {law(one_row(), AcceptedPrefix()).rows[0][A,], P_D[A] / (P_D[A] + P_D[B] * ACCEPT[B])}
    computed |= {reciprocal().joint[(B,), (B,)], P_D[A] ** 2, P_T[B] ** 2, P_T[B] * ACCEPT[B]}
    quoted = {Fraction(each) for each in re.findall(r"(?<![\d./])\d+/\d+(?![\d.]*\d)", PROSE)}
    assert len(quoted) >= 12
    assert quoted <= computed


def test_the_counts_in_the_prose_are_those_of_the_table() -> None:
    table = TEXT.partition("<!-- length maps -->")[2].partition("<!-- end of length maps -->")[0]
    lines = [line for line in table.splitlines() if re.match(r"\| [\d/, ]+ \| [\d/, ]+ \| \d+ \|", line)]
    generic = {tuple(int(cell) for cell in line.split("|")[3:8]) for line in lines[:4]}
    assert len(lines) == 7
    (found,) = generic
    marginal, blind, joint, stops, between = found
    assert says(
        f"the {blind} row-wise maps are those with right marginals, {joint} have the right joint law, and rule (b) "
        f"proves {stops} of them",
        f"The remaining {marginal - joint} of the {marginal} are the reciprocal maps",
    )
    assert between == 4
    assert says("*The four in between*")


def test_maps_of_one_row_need_a_draft_that_depends_on_the_one_before() -> None:
    """The two maps named in the page: verify draft 1 iff draft 2 is A, or iff it is B."""
    target, blind = ((P_T,),), (((Fraction(2, 5), Fraction(3, 5)),),)
    seeing = ((blind[0][0], (Fraction(1, 3), Fraction(2, 3))),)
    for wanted in (A, B):
        mapping = LengthMap.of(lambda x, token=wanted: (int(x[0][1] == token),), (2,), 2)
        assert law(revealing_world(mapping, target, blind), MapPolicy(mapping)).verdict == "lossless"
        assert law(revealing_world(mapping, target, seeing), MapPolicy(mapping)).verdict == "marginal"


BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_its_python_runs(number: int) -> None:
    exec(compile(BLOCKS[number], f"docs/lossless.md, example {number + 1}", "exec"), {"__name__": "example"})


def test_links_lead_somewhere() -> None:
    titles = re.findall(r"^## (.*)$", TEXT, re.MULTILINE)
    headings = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
    anchors = re.findall(r"\]\(#([^)]+)\)", TEXT)
    assert set(anchors) == headings
