"""The counter-based generator: known words, keys, moments and tails of what is made of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from specsched.sim.hashing import extend, key, logits, mix, normal, normals, uniforms, weyl, words

DRAWS = 400_000


def sample(stream: int = 7) -> np.ndarray:
    return words(key(stream), weyl(np.arange(DRAWS)))


def test_words_are_splitmix64() -> None:
    """The first outputs of SplitMix64 seeded with 1234567, as published with its reference code."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert words(1234567, weyl([1, 2, 3, 4])).tolist() == expected
    assert words(1234567, weyl([0, 1, 2]), first=2).tolist() == expected[1:]
    assert [mix(1234567 + n * 0x9E3779B97F4A7C15) for n in range(1, 5)] == expected


def test_a_word_depends_on_its_counter_alone() -> None:
    whole = words(key(1), weyl(np.arange(1000)))
    shuffled = np.random.default_rng(0).permutation(1000)
    np.testing.assert_array_equal(words(key(1), weyl(shuffled)), whole[shuffled])
    np.testing.assert_array_equal(words(key(1), weyl(np.arange(10)), first=990), whole[990:])


def test_keys_tell_tuples_apart() -> None:
    keys = {key(*parts) for n in (1, 2, 3) for parts in itertools.product(range(-3, 12), repeat=n)}
    assert len(keys) == 15 + 15**2 + 15**3
    assert extend(key(3, 1), 4) == key(3, 1, 4) == key(np.int64(3), np.int64(1), np.int64(4))


def test_uniforms_are_uniform_and_never_0_or_1() -> None:
    u = uniforms(sample())
    assert u.min() > 0.0
    assert u.max() < 1.0
    assert stats.kstest(u, "uniform").pvalue > 0.01
    ends = uniforms(np.array([0, 2**64 - 1], np.uint64))
    np.testing.assert_array_equal(ends, [2.0**-33, 1.0 - 2.0**-33])


def test_logits_are_those_of_the_uniforms() -> None:
    word = sample()
    u = uniforms(word)
    np.testing.assert_allclose(logits(word), np.log(u) - np.log1p(-u), rtol=1e-9, atol=1e-12)


def test_the_normal_table_has_the_moments_it_claims() -> None:
    table = normals(np.arange(65_536, dtype=np.uint64) << np.uint64(48))
    assert abs(table.mean()) < 1e-12
    assert table.var() == pytest.approx(1.0, abs=1e-12)
    assert stats.kurtosis(table) == pytest.approx(-0.0008, abs=0.0001)
    assert table[-1] == -table[0] == pytest.approx(4.325, abs=0.0005)
    np.testing.assert_allclose(table[1:-1], stats.norm.ppf((np.arange(1, 65_535) + 0.5) / 65_536), atol=3e-4)


@pytest.mark.parametrize("field", range(4))
def test_normals_are_normal(field: int) -> None:
    z = normals(sample(), field)
    assert stats.kstest(z, "norm").pvalue > 0.01
    assert abs(z.mean()) < 4 / np.sqrt(DRAWS)
    assert abs(z.var() - 1.0) < 4 * np.sqrt(2 / DRAWS)
    beyond = np.mean(np.abs(z) > 3.0)
    assert abs(beyond - 0.0026998) < 4 * np.sqrt(0.0026998 / DRAWS)


def test_fields_neighbours_and_streams_are_uncorrelated() -> None:
    word = sample()
    columns = [normals(word, field) for field in range(3)] + [logits(word) / np.sqrt(np.pi**2 / 3), normals(sample(8))]
    columns.append(np.roll(columns[0], 1))
    correlation = np.corrcoef(columns) - np.eye(len(columns))
    # Field 2 and the uniforms share bits on purpose (the lower half of the upper 32), so that pair is left out.
    correlation[2, 3] = correlation[3, 2] = 0.0
    assert np.abs(correlation).max() < 4.5 / np.sqrt(DRAWS)


def test_one_normal_is_that_of_its_word() -> None:
    word = sample()[:50]
    assert [normal(int(w)) for w in word] == normals(word).tolist()
