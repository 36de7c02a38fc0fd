from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from specsched.experiments.config.document import Document, dump, load_document, parse_value
from specsched.experiments.config.errors import ConfigError

# Scalars of the core schema, YAML 1.2.2 section 10.3.2, beside what YAML 1.1 makes of them.
WORDS = ["on", "off", "yes", "no", "Yes", "y", "1_000", "2026-08-14", "1:30", "0o8", "0b11", "1e", "+", ".", "nUll"]
VALUES = [
    ("1e-3", 0.001),
    ("1E3", 1000.0),
    ("-2.5e+1", -25.0),
    (".5", 0.5),
    ("1.", 1.0),
    ("0o17", 15),
    ("017", 17),
    ("0x1F", 31),
    ("-12", -12),
    ("+3", 3),
    ("true", True),
    ("FALSE", False),
    ("null", None),
    ("~", None),
    ("", None),
    (".inf", float("inf")),
    ("-.INF", float("-inf")),
    ("'5'", "5"),
    ('"true"', "true"),
]


def read(tmp_path: Path, text: str) -> Document:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    return load_document(file, "x.yaml")


@pytest.mark.parametrize("word", WORDS)
def test_words_of_yaml_1_2_stay_words(word: str) -> None:
    assert parse_value(word, "here") == word


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_scalars_have_the_values_and_types_of_the_core_schema(text: str, value: Any) -> None:
    got = parse_value(text, "here")
    assert got == value
    assert type(got) is type(value)


def test_nan_is_a_number() -> None:
    value = parse_value(".nan", "here")
    assert isinstance(value, float)
    assert value != value


def test_every_key_path_has_its_line(tmp_path: Path) -> None:
    document = read(tmp_path, "a:\n  b: 1\n  c:\n    - x\n    - {d: 2}\n\ne: 3\n")
    assert document.data == {"a": {"b": 1, "c": ["x", {"d": 2}]}, "e": 3}
    assert document.lines == {
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "c"): 3,
        ("a", "c", 0): 4,
        ("a", "c", 1): 5,
        ("a", "c", 1, "d"): 5,
        ("e",): 7,
    }


def test_where_falls_back_to_the_nearest_parent(tmp_path: Path) -> None:
    document = read(tmp_path, "a:\n  b: 1\n")
    assert document.where(("a", "b")) == "x.yaml:2"
    assert document.where(("a", "missing")) == "x.yaml:1"
    assert document.where(("missing",)) == "x.yaml"


def test_aliases_are_written_out(tmp_path: Path) -> None:
    document = read(tmp_path, "a: &x {b: 1}\nc: *x\n")
    assert document.data == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "x.yaml:4:3: key 'c' appears twice, first on line 3"),
        ("a: {b: 1, b: 2}", "x.yaml:1:11: key 'b' appears twice"),
        ("- 1", "x.yaml: the top level must be a mapping"),
        ("", "x.yaml: the top level must be a mapping"),
        ("just words", "x.yaml: the top level must be a mapping"),
        ("a:\n\tb: 1", r"x.yaml:2:1: not valid YAML: .*\\t"),
        ("a: [1, 2", "x.yaml:1:9: not valid YAML"),
        ("a: 1\n---\nb: 2\n", "x.yaml:2:1: not valid YAML: .*another document"),
        ("a: *nothing", "x.yaml:1:4: not valid YAML: .*undefined alias"),
        ("a: &x [*x]", "x.yaml:1:4: an alias that contains itself"),
        ("<<: {a: 1}", "x.yaml:1:1: merge keys"),
        ("1: one", "x.yaml:1:1: the key 1 is not a word; put it in quotes"),
        ("true: one", "x.yaml:1:1: the key true is not a word"),
        ("? [a]\n: 1", "x.yaml:1:3: the key is not a word"),
        ("a: !!python/name:os.system x", "x.yaml:1:4: the tag .*python/name.* is not supported"),
        ("a: !!int 1_0", "x.yaml:1:4: '1_0' is not of the kind int"),
        ("a: " + "9" * 5000, "x.yaml:1:4: 9{40}.. is not a usable number"),
        ("a: \x01", "x.yaml: not valid YAML"),
        ("a: " + "[" * 5000, "x.yaml: nested too deeply"),
    ],
)
def test_what_is_no_experiment_yaml_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_aliases_of_aliases_do_not_explode(tmp_path: Path) -> None:
    levels = [f"k{n}: &k{n} [" + ", ".join([f"*k{n - 1}"] * 10) + "]" for n in range(1, 10)]
    with pytest.raises(ConfigError, match="more than 100000 values"):
        read(tmp_path, "\n".join(["k0: &k0 x", *levels]))


def test_a_file_that_cannot_be_read_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"x.yaml: cannot be read: No such file"):
        load_document(tmp_path / "none.yaml", "x.yaml")


@given(
    st.recursive(
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(),
            st.floats(allow_nan=False),
            st.sampled_from(WORDS + [text for text, _ in VALUES]),
            st.text(max_size=20).filter(lambda text: text.isprintable()),
        ),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text("abno01", min_size=1), inner)),
        max_leaves=10,
    )
)
def test_what_is_dumped_reads_back_in_yaml_1_2_and_1_1(value: Any) -> None:
    text = dump({"key": value})
    assert parse_value(text, "here") == {"key": value}
    assert yaml.safe_load(text) == {"key": value}
