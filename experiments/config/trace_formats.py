"""Which trace format is meant: a shipped one by its name, or an object of the user's own."""

from __future__ import annotations

from collections.abc import Sequence

from ...policies.nearest import suggestion
from ...policies.objects import load_object
from ...traces import FORMATS, NAMED_FORMATS, TraceError, TraceFormat
from .schema import PythonFormat


def formats_of(given: str | PythonFormat | None) -> Sequence[TraceFormat]:
    """Return the formats to try on a trace file: those of a name, or one object; where nothing is named, all shipped.

    Raises:
        TraceError: for an unknown name, or an object that cannot be imported or is no `TraceFormat`.
    """
    if given is None:
        return FORMATS
    if isinstance(given, PythonFormat):
        return (_of_the_user(given.object),)
    if given not in NAMED_FORMATS:
        own = f"; an object of your own is {{kind: python, object: '{given}'}}" if ":" in given else ""
        raise TraceError(f"no trace format is called {given!r}; {suggestion(given, NAMED_FORMATS)}{own}")
    return NAMED_FORMATS[given]


def format_named(text: str) -> Sequence[TraceFormat]:
    """Return the formats of a name, or of ``module:NAME``, as a command line has it; raises as `formats_of`."""
    return (_of_the_user(text),) if ":" in text else formats_of(text)


def _of_the_user(path: str) -> TraceFormat:
    found = load_object(path, "trace format", TraceError, form="module:NAME")
    if not isinstance(found, TraceFormat):
        raise TraceError(f"'{path}' must be a specsched.traces.TraceFormat, got {found!r}")
    return found
