"""Compute the shipped parameters of the latent draft model from the published figures that ship beside them.

    python benchmarks/build_latent.py [--out sim/data/latent.json] [--noise 0.3]

Takes four minutes on one core and gives the same file again. `experiments/calibrate_latent.py` says what is fitted to
what.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from specsched.experiments.fits.calibrate_latent import NOISE, Sizes, calibrate, load_figures
from specsched.sim.acceptance import LATENT_FILE

ABOUT = (
    "Parameters of the latent draft model, computed by benchmarks/build_latent.py from published_acceptance.json and"
    " published_confidence.json. `conditional` is what the levels reproduce under static chains of full blocks."
)


def pretty(value: Any, depth: int = 0) -> str:
    """Return JSON with one line a list of numbers."""
    if not isinstance(value, dict):
        return json.dumps(value)
    pad = " " * depth
    return "{\n" + ",\n".join(f"{pad} {json.dumps(k)}: {pretty(v, depth + 1)}" for k, v in value.items()) + f"\n{pad}}}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=LATENT_FILE)
    parser.add_argument("--noise", type=float, default=NOISE)
    arguments = parser.parse_args()
    sizes = Sizes()
    latent = calibrate(load_figures(), sizes, arguments.noise)
    made = {
        "requests": {name: getattr(sizes, name) for name in sizes.__slots__},
        "output_tokens": 256,
        "numpy": np.__version__,
    }
    arguments.out.write_text(pretty({"about": ABOUT, "calibration": made, **latent}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
