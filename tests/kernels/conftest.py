"""Kernels run in Triton's interpreter here; it must be chosen before Triton is imported."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import torch

torch.set_num_threads(1)
