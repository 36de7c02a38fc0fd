"""Kernels run in Triton's interpreter here; it must be chosen before Triton is imported. All tests are `kernels`."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import pytest
import torch

torch.set_num_threads(1)


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker("kernels")
