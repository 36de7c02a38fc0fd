"""The comparison of the parts sees a test that no part runs, one that two run, and a part without tests."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[1] / ".ci/check_parts.py"))
WHOLE = ["tests/a.py::one", "tests/a.py::two", "tests/b.py::three[x]"]


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ({"test": WHOLE[:2], "test-deep": WHOLE[2:]}, []),
        ({"test": WHOLE[:2], "test-deep": []}, ["test-deep: no test", "tests/b.py::three[x]: in no part"]),
        ({"test": WHOLE, "test-deep": WHOLE[2:]}, ["tests/b.py::three[x]: in test, test-deep"]),
        ({"test": WHOLE + WHOLE[:1], "test-deep": WHOLE[:1]}, ["tests/a.py::one: in test, test-deep"]),
        ({"test": WHOLE, "test-deep": ["tests/c.py::four"]}, ["tests/c.py::four: not in the whole"]),
    ],
)
def test_every_test_is_in_one_part(parts: dict[str, list[str]], found: list[str]) -> None:
    assert SCRIPT["problems"](WHOLE, parts) == found


def test_what_cannot_be_collected_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "test_torn.py").write_text("import no_such_module\n")
    with pytest.raises(SystemExit, match="no_such_module"):
        SCRIPT["collected"]([*SCRIPT["ALL"], "-p", "no:cacheprovider", str(tmp_path)])
