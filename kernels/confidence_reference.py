"""Confidences and survivals in float64, straight from the equations."""

from __future__ import annotations

import torch

from .confidence import Confidence


def confidence_reference(
    hidden: torch.Tensor,
    w1: torch.Tensor,
    previous: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    inv_temperature: torch.Tensor,
    available: torch.Tensor | None = None,
) -> Confidence:
    """Return what `specsched.kernels.confidence.confidence` does, float64 ``[R, g]``, one position at a time.

    Equation 7 of the DSpark paper (arXiv 2607.05147), its temperatures on the logit and its prefix product. Arguments
    and positions of no use are those of the kernel.
    """
    rows, gamma, _ = hidden.shape
    c = torch.zeros(rows, gamma, dtype=torch.float64)
    for row in range(rows):
        drafts = gamma if available is None else int(available[row])
        for position in range(min(drafts, gamma)):
            token = int(previous[row, position])
            scale = float(inv_temperature[position])
            if not (0 <= token < w1.shape[0] and scale > 0.0):
                # c stays 0, and with it every survival from here on.
                continue
            features = torch.cat((hidden[row, position].double(), w1[token].double()))
            logit = weight.double() @ features + (0.0 if bias is None else float(bias))
            value = torch.sigmoid(scale * logit)
            c[row, position] = 0.0 if value.isnan() else value
    return Confidence(c, survival_reference(c))


def survival_reference(c: torch.Tensor) -> torch.Tensor:
    """Return the product of confidences ``[R, g]`` from left to right, in float64."""
    survivals = torch.empty(c.shape, dtype=torch.float64)
    for row, values in enumerate(c.double().tolist()):
        # One factor after the other, which is the definition; a library's cumulative product may group them.
        product = 1.0
        for position, value in enumerate(values):
            product *= value
            survivals[row, position] = product
    return survivals
