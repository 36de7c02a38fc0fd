"""Draw the rooms of the code and who imports whom, from the imports themselves, into docs/shape.md.

    python benchmarks/rooms.py [--check]

Rewrites what stands between the markers of the page; with ``--check`` compares it and exits 1 where it differs. A room
is a package, or a module beside rooms that an import contract orders. The picture leaves out an arrow where a longer
way leads to the same room; the table has all of them. What a package's ``__init__.py`` alone imports, to hand it on to
users, is a dotted arrow.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
DOC = ROOT / "docs" / "shape.md"
BEGIN, END = "<!-- rooms -->\n", "<!-- end of rooms -->\n"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES: list[str] = PROJECT["tool"]["setuptools"]["packages"]

Arrow = tuple[str, str]


@dataclass(frozen=True)
class Map:
    """Rooms by their names without ``specsched.``, the inner ones after those that hold them, and arrows between them.

    Attributes:
        rooms: what lives in each, by its docstring.
        arrows: (importer, imported) of files other than ``__init__.py``.
        handed_on: (importer, imported) of the ``__init__.py`` of a package, where no other file of it imports that.
    """

    rooms: Mapping[str, str]
    arrows: frozenset[Arrow]
    handed_on: frozenset[Arrow]


def containers() -> list[str]:
    """Return the packages whose children an import contract orders: modules among these are rooms too."""
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    return [name for contract in contracts for name in contract.get("containers", ())]


def read_map() -> Map:
    """Return the map of the tree."""
    sys.path.insert(0, str(ROOT / ".typing"))
    graph = grimp.build_graph("specsched", cache_dir=None)
    inside = [module for each in containers() for module in graph.find_children(each)]
    rooms = sorted({*PACKAGES, *inside})
    arrows, handed_on = set(), set()
    for module in graph.modules - {"specsched"}:
        imported = {room_of(other, rooms) for other in graph.find_modules_directly_imported_by(module)}
        found = {(room_of(module, rooms), room) for room in imported if room != room_of(module, rooms)}
        (handed_on if module in PACKAGES else arrows).update(found)
    return Map({short(room): docstring(room) for room in rooms}, shortened(arrows), shortened(handed_on - arrows))


def room_of(module: str, rooms: Iterable[str]) -> str:
    """Return the innermost room that holds a module."""
    return max((room for room in rooms if f"{module}.".startswith(f"{room}.")), key=len)


def short(room: str) -> str:
    return room.removeprefix("specsched.")


def shortened(arrows: Iterable[Arrow]) -> frozenset[Arrow]:
    return frozenset((short(one), short(other)) for one, other in arrows)


def docstring(room: str) -> str:
    """Return the first line of what a room says of itself; a package without ``__init__.py`` says it in ``ops.py``."""
    path = ROOT / short(room).replace(".", "/")
    names = [path.with_suffix(".py"), path / "__init__.py", path / "ops.py"]
    text = next((name.read_text(encoding="utf-8") for name in names if name.is_file()), "")
    return (ast.get_docstring(ast.parse(text)) or "").split("\n")[0]


def drawn(arrows: frozenset[Arrow]) -> list[Arrow]:
    """Return the arrows without those that a longer way of arrows makes plain, in order."""
    direct: dict[str, set[str]] = {}
    for one, other in arrows:
        direct.setdefault(one, set()).add(other)
    return sorted((one, other) for one, other in arrows if other not in _beyond(direct, direct[one] - {other}, one))


def _beyond(direct: Mapping[str, set[str]], start: Iterable[str], never: str) -> set[str]:
    """Return what can be reached from rooms, these included, without passing a certain one."""
    reached: set[str] = set()
    ahead = set(start)
    while ahead:
        room = ahead.pop()
        reached.add(room)
        ahead |= direct.get(room, set()) - reached - {never}
    return reached


def picture(found: Map) -> str:
    """Return the map as a Mermaid flowchart."""
    tops = [room for room in found.rooms if "." not in room]
    lines = ["```mermaid", "flowchart LR"]
    for top in tops:
        inner = [room for room in found.rooms if room.startswith(f"{top}.")]
        if not inner:
            lines.append(f"    {top}")
            continue
        lines.append(f"    subgraph in_{top}[{top}/]")
        joined = [room for room in (top, *inner) if any(room in arrow for arrow in found.arrows | found.handed_on)]
        lines += [f"        {key(room)}[{room.rpartition('.')[2]}]" for room in joined]
        lines.append("    end")
    lines += [f"    {key(one)} --> {key(other)}" for one, other in drawn(found.arrows)]
    lines += [f"    {key(one)} -.-> {key(other)}" for one, other in sorted(found.handed_on)]
    return "\n".join([*lines, "```"]) + "\n"


def key(room: str) -> str:
    """Return a name that Mermaid takes."""
    return room.replace(".", "_")


def table(found: Map) -> str:
    """Return the rooms with all their arrows as Markdown."""
    lines = ["| room | what lives there | imports |", "|---|---|---|"]
    for room, says in found.rooms.items():
        names = sorted(other for one, other in found.arrows if one == room)
        names += [f"({other})" for one, other in sorted(found.handed_on) if one == room]
        where = room.replace(".", "/") + ("" if f"specsched.{room}" in PACKAGES else ".py")
        lines.append(f"| `{where}` | {says.replace('``', '`')} | {', '.join(names) or '-'} |")
    return "\n".join(lines) + "\n"


def rewritten(text: str, found: Map) -> str:
    """Return the page with a fresh picture and table.

    Raises:
        SystemExit: if it lacks the markers.
    """
    before, begun, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise SystemExit(
            f"error: {DOC.name} lacks `{BEGIN.strip()}` .. `{END.strip()}`; put both on lines of their own"
        )
    return f"{before}{BEGIN}{picture(found)}\n{table(found)}{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args(arguments)
    text = DOC.read_text(encoding="utf-8")
    fresh = rewritten(text, read_map())
    if not options.check:
        DOC.write_text(fresh, encoding="utf-8")
        return 0
    print("up to date" if fresh == text else f"{DOC.name}: rooms or arrows differ; run python benchmarks/rooms.py")
    return int(fresh != text)


if __name__ == "__main__":
    sys.exit(main())
