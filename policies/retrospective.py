"""What Appendix A warns of: a global argmax over the very confidences that it then cuts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .admission import admit
from .arrays import Ints
from .interface import Policy, PolicyError, Safety, View
from .parameters import at_least
from .search import SearchOptions, search_matrix


@dataclass(frozen=True)
class Retrospective(Policy):
    """`AsyncTopK` with lag 0: it biases the output. Kept to measure what the bias would seem to win.

    Attributes:
        min_len: drafts every row gets whatever its survival.
        pays_stall: whether the engine charges the sync stall, as it would have to if it ran this: the budget waits
            for the confidences of its own step.
    """

    kind: ClassVar[str] = "retrospective"
    safety: ClassVar[Safety] = "unsafe"
    min_len: int = 0
    pays_stall: bool = False

    def __post_init__(self) -> None:
        at_least(self.kind, "min_len", self.min_len, 0)
        if not isinstance(self.pays_stall, bool):
            raise PolicyError(f"`pays_stall` of policy `{self.kind}` must be true or false, got {self.pays_stall!r}")

    @property
    def stalls(self) -> bool:
        """Whether the engine charges the sync stall: as asked, so that the illusion can be shown without it."""
        return self.pays_stall

    def plan(self, view: View, state: Any) -> tuple[Ints, Any]:
        """Admit the top K, K being the argmax over the same survivals."""
        budget = search_matrix(view.survival, view, SearchOptions(min_len=self.min_len))
        return admit(view.generation, view.available, budget, self.min_len, view.drafted), state
