"""Array types of the interface."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
"""An array of float64."""

Ints = npt.NDArray[np.int64]
"""An array of int64."""

Bools = npt.NDArray[np.bool_]
"""An array of bool."""
