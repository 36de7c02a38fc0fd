"""docs/api.md is what its script makes of the docstrings, and the script reads the code as Python does."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from .api_page import ROOT, SCRIPT, differences

PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
CORE = [path for path in SCRIPT["PATHS"] if not path.startswith("kernels")]
"""Paths that can be imported without an extra; tests/kernels looks at the others."""


def test_the_page_is_up_to_date() -> None:
    assert SCRIPT["page"]() == PAGE, "run `python benchmarks/api_page.py --write`"


@pytest.mark.parametrize("path", CORE)
def test_arguments_are_those_of_the_code(path: str) -> None:
    assert differences(path) == {}


@pytest.mark.parametrize("path", CORE)
def test_every_name_is_there_and_told_of(path: str) -> None:
    module = importlib.import_module(f"specsched.{path}")
    section = PAGE.split(f"\n## `specsched.{path}`\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+).*?` \| (.*) \|$", section, re.MULTILINE)
    assert {name for name, _ in rows} == set(module.__all__)
    assert [name for name, what in rows if not what.endswith(".")] == []


def test_the_readme_and_the_pages_import_from_public_paths_alone() -> None:
    public = {f"specsched.{path}" for path in SCRIPT["PATHS"]}
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            imported = re.findall(r"^(?:>>> )?\s*(?:from|import) (specsched[\w.]*)", block, re.MULTILINE)
            assert set(imported) <= public, page.name


@pytest.mark.parametrize(("change", "noticed"), [("", False), ("more", True)])
def test_a_page_that_is_behind_is_noticed(
    tmp_path: Path, change: str, noticed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, main = tmp_path / "api.md", SCRIPT["main"]
    page.write_text(PAGE + change, encoding="utf-8")
    monkeypatch.setitem(main.__globals__, "PAGE", page)
    monkeypatch.setattr(sys, "argv", ["api_page.py", "--check"])
    if noticed:
        with pytest.raises(SystemExit, match="not up to date"):
            main()
    else:
        main()
    monkeypatch.setattr(sys, "argv", ["api_page.py", "--write"])
    main()
    assert page.read_text(encoding="utf-8") == PAGE


def test_sentences_end_where_they_do() -> None:
    first = SCRIPT["first_sentence"]
    assert first("Return `a.b` (Eq. 4 and 5) of\nrows. More.\n\nStill more.") == "Return `a.b` (Eq. 4 and 5) of rows."
    assert first(None) == ""
