"""Request traces: readers of public formats, synthetic generators, statistics, one canonical table."""

from .arrivals import flash_arrivals, gamma_arrivals, poisson_arrivals, wave_arrivals
from .formats import FORMATS, NAMED_FORMATS, TraceFormat, date_nanoseconds, plain_number
from .generate import Arrivals, draw_domains, generate_trace
from .lengths import LENGTH_TABLES, LengthTable, load_lengths
from .reader import read_trace, trace_format, write_trace
from .statistics import rounded_statistics, trace_statistics
from .table import TraceError, check_trace
from .transform import rate, scale_rate, window

__all__ = [
    "FORMATS",
    "LENGTH_TABLES",
    "NAMED_FORMATS",
    "Arrivals",
    "LengthTable",
    "TraceError",
    "TraceFormat",
    "check_trace",
    "date_nanoseconds",
    "draw_domains",
    "flash_arrivals",
    "gamma_arrivals",
    "generate_trace",
    "load_lengths",
    "plain_number",
    "poisson_arrivals",
    "rate",
    "read_trace",
    "rounded_statistics",
    "scale_rate",
    "trace_format",
    "trace_statistics",
    "wave_arrivals",
    "window",
    "write_trace",
]
