"""Counter-based randomness: a value is a function of a key and a counter, so the order of calls cannot matter.

The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): word
``n`` of a stream is a mixing of ``key + n * GOLDEN``. Any word is reached without its predecessors. Keys are mixed
from (seed, stream, request, ..) by the same function, so streams start at unrelated places of the cycle of 2^64.

Normals are read from a table of 65,536 quantiles, scaled to variance 1: 16 bits of a word give one. They end at
+-4.325 and have excess kurtosis -0.0008: enough for difficulties and noise, not for the study of rare events.
Uniforms come from 32 bits and sit in the middle of their cell, so they are never 0 or 1.
"""

from __future__ import annotations

import functools
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from ..policies import Floats

Words = npt.NDArray[np.uint64]

# Keys are Python integers, which never overflow: they are cut by hand. In arrays uint64 wraps as it should, while
# NumPy's scalars would warn.
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_SHIFT_30, _SHIFT_27, _SHIFT_31 = np.uint64(30), np.uint64(27), np.uint64(31)
_FIRST_WORD, _SECOND_WORD = np.uint64(_FIRST), np.uint64(_SECOND)
_CELLS = 1 << 16
_CELL = np.uint64(_CELLS - 1)
_HALF = np.uint64(32)
_FIELDS = tuple(np.uint64(shift) for shift in (0, 16, 32, 48))


def mix(value: int) -> int:
    """Return SplitMix64's finalizer of one 64-bit number; higher bits are cut off."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * _FIRST) & _MASK
    value = ((value ^ (value >> 27)) * _SECOND) & _MASK
    return value ^ (value >> 31)


def key(*parts: int) -> int:
    """Return the 64-bit key of a tuple of integers, such as (seed, stream, request).

    >>> key(0, 1, 7) == key(0, 7, 1)
    False
    """
    state = _GOLDEN
    for part in parts:
        state = extend(state, part)
    return state


def extend(state: int, part: int) -> int:
    """Return the key of a tuple with one integer more: ``extend(key(a, b), c) == key(a, b, c)``."""
    return mix(state + _GOLDEN + int(part))


def weyl(counters: npt.ArrayLike) -> Words:
    """Return counters, whole numbers, as the steps that `words` takes."""
    return np.asarray(counters, np.uint64) * np.uint64(_GOLDEN)


def words(stream: int, steps: Words, first: int = 0) -> Words:
    """Return a 64-bit word, uint64, for each counter ``first + counters``.

    Args:
        stream: the key of the stream.
        steps: `weyl` of the counters, any shape.
        first: added to every counter.
    """
    word = steps + np.uint64((stream + int(first) * _GOLDEN) & _MASK)
    # The finalizer of `mix` on arrays, with two buffers for all of its steps.
    shifted = np.right_shift(word, _SHIFT_30)
    np.bitwise_xor(word, shifted, out=word)
    np.multiply(word, _FIRST_WORD, out=word)
    np.right_shift(word, _SHIFT_27, out=shifted)
    np.bitwise_xor(word, shifted, out=word)
    np.multiply(word, _SECOND_WORD, out=word)
    np.right_shift(word, _SHIFT_31, out=shifted)
    np.bitwise_xor(word, shifted, out=word)
    return word


def uniforms(word: Words) -> Floats:
    """Return a uniform in (0, 1) for each word, from its upper 32 bits."""
    result: Floats = (np.right_shift(word, _HALF).astype(np.float64) + 0.5) * 2.0**-32
    return result


def logits(word: Words) -> Floats:
    """Return ``log(u / (1 - u))`` of the uniforms of the words: standard logistic numbers."""
    cell = np.right_shift(word, _HALF).astype(np.float64)
    # With u = cell / 2^32, u / (1 - u) is cell / (2^32 - cell): one division.
    cell += 0.5
    result: Floats = cell / (2.0**32 - cell)
    return np.log(result, out=result)


def normals(word: Words, field: int = 3) -> Floats:
    """Return a standard normal for each word.

    Args:
        word: uint64, any shape.
        field: which 16 bits of the word are read, 0 (lowest) to 3; different fields are independent.
    """
    cell = np.right_shift(word, _FIELDS[field])
    # Nothing is above the topmost field.
    if field < 3:
        np.bitwise_and(cell, _CELL, out=cell)
    return _quantiles().take(cell.view(np.int64))


def normal(word: int) -> float:
    """Return `normals` of one word given as an integer."""
    return float(_quantiles()[word >> 48])


@functools.cache
def _quantiles() -> Floats:
    """Return float64 ``[65536]``: normal quantiles at the middle of equal cells, scaled to variance 1."""
    inverse = NormalDist().inv_cdf
    upper = np.array([inverse(0.5 + (cell + 0.5) / _CELLS) for cell in range(_CELLS // 2)])
    # One half mirrored: for each number its negative, to the last bit.
    table = np.concatenate((-upper[::-1], upper))
    table /= np.sqrt(np.mean(table**2))
    table.flags.writeable = False
    return table
