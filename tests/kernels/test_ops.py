"""specsched.kernels.ops: docs/api.md says of it what the code says."""

from __future__ import annotations

from specsched.kernels import ops

from ..api_page import SCRIPT, differences


def test_arguments_are_those_of_the_code() -> None:
    assert differences("kernels.ops") == {}


def test_every_name_is_there() -> None:
    assert set(SCRIPT["public_names"]("kernels.ops")) == set(ops.__all__)
    assert all(hasattr(ops, name) for name in ops.__all__)
