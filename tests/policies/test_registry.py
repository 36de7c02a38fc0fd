"""The registry finds every scheduler of the room, each under a kind of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from specsched.policies import POLICIES, Ints, Policy, PolicyError, View
from specsched.policies.registry import collect, shipped

ROOM = Path(__file__).resolve().parents[2] / "policies"


@dataclass(frozen=True)
class Nothing(Policy):
    kind: ClassVar[str] = "static"

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        return view.available * 0, state


class Nameless(Nothing):
    kind = ""


def test_every_file_with_a_kind_is_found() -> None:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in ROOM.glob("*.py")}
    named = {stem for stem, text in texts.items() if "    kind: ClassVar[str] = " in text} - {"interface"}
    assert {cls.__module__.rpartition(".")[2] for cls in shipped()} == named
    assert {cls.kind for cls in shipped()} == POLICIES.keys()


def test_messages_list_the_kinds_in_their_old_order() -> None:
    assert list(POLICIES) == [
        *("autoregressive", "static", "threshold", "greedy_early_stop"),
        *("async_topk", "retrospective", "oracle", "oracle_rate"),
    ]


def test_a_kind_belongs_to_one_class() -> None:
    with pytest.raises(PolicyError, match="policy kind `static` is declared by Static and Nothing"):
        collect([POLICIES["static"], Nothing])


def test_a_class_without_a_kind_is_refused() -> None:
    with pytest.raises(PolicyError, match="policy class `Nameless` has no `kind`"):
        collect([Nameless])
