"""README and docs: links lead somewhere, files that are named exist, and pages keep to their length."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILES = re.compile(r"`((?:traces|policies|sim|kernels|experiments|tests|docs|benchmarks|\.ci)/[\w./-]*\w)`")
LONGEST = {"README.md": 110, "docs/lag_study.md": 150, "docs/kernels.md": 250}
PAST = {"docs/LOG.md"}
"""Pages that tell of what was: files they name may be gone."""


def prose(text: str) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """What a link may name after the `#`: the headings, as GitHub writes them."""
    titles = re.findall(r"^#+ (.*)$", prose(page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text(encoding="utf-8"))):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_are_named_exist(page: Path) -> None:
    if page.relative_to(ROOT).as_posix() in PAST:
        return
    named = FILES.findall(prose(page.read_text(encoding="utf-8")))
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("name", LONGEST)
def test_pages_that_a_visitor_reads_are_short(name: str) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= LONGEST[name]


def test_a_heading_is_found_by_its_anchor(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# One `x`, two\n```\n# no heading\n```\n", encoding="utf-8")
    assert anchors(tmp_path / "page.md") == {"one-x-two"}


def test_the_contracts_are_those_of_the_project() -> None:
    """docs/development.md has a row for each import contract, and the rooms of experiments in their order."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    page = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")
    table = page.split("| contract | in other words |\n|---|---|\n")[1].split("\n\n")[0].splitlines()
    assert [line.strip("| ").split(" | ")[0] for line in table] == [each["name"] for each in contracts]
    (rooms,) = (each["layers"] for each in contracts if "containers" in each)
    order = [" beside ".join(f"`{room}`" for room in layer.split(" | ")) for layer in reversed(rooms)]
    assert f"in the order {', '.join(order)};" in page
