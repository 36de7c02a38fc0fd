"""Profile files: shipped ones, their sources, and every way a file can be wrong."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest

from specsched.sim.curve import build_curve
from specsched.sim.jaggedness import jaggedness
from specsched.sim.profile import (
    ProfileError,
    default_captured_sizes,
    dump_profile,
    load_profile,
    parse_profile,
    profile_from_samples,
    profile_names,
)

ROOT = Path(__file__).resolve().parents[2]
B300 = "vllm-dsv4flash-b300-tp4"


def fields() -> dict[str, Any]:
    """Return a small valid profile as plain data."""
    return json.loads(dump_profile(profile_from_samples("small", [1, 8, 16], [1.0, 2.0, 3.0], [8], {1: 0.1, 8: 0.2})))


def refused(data: dict[str, Any]) -> str:
    with pytest.raises(ProfileError) as caught:
        parse_profile(json.dumps(data), "bad.json")
    return str(caught.value)


def builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_profiles", ROOT / "benchmarks" / "build_profiles.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_shipped_names() -> None:
    assert profile_names() == ["dsv4flash-8xh100", "llama31-70b-h100-tp4", "llama31-8b-h100", B300]


@pytest.mark.parametrize("name", profile_names())
def test_shipped_profiles_name_themselves_and_survive_a_round_trip(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    text = (ROOT / "sim" / "profiles" / f"{name}.json").read_text(encoding="utf-8")
    assert dump_profile(profile) == text
    assert parse_profile(text, name) == profile


def test_only_measured_draft_costs_are_called_measured() -> None:
    sources = {name: load_profile(name).draft for name in profile_names()}
    measured = [name for name, draft in sources.items() if draft is not None and draft.source == "measured"]
    assert measured == [B300]
    assert all("ASSUMED" in draft.note for draft in sources.values() if draft and draft.source == "assumed")


@pytest.mark.parametrize("name", [name for name in profile_names() if name != B300])
def test_extrapolated_samples_are_labelled(name: str) -> None:
    profile = load_profile(name)
    extrapolated = [size for size in profile.verify.tokens if size > 1024]
    assert profile.verify.extrapolated_from == min(extrapolated)
    assert any("EXTRAPOLATED" in line for line in profile.provenance)


def test_measured_profile_keeps_its_raw_samples() -> None:
    profile = load_profile(B300)
    assert len(profile.verify.tokens) == 439
    assert len(set(profile.verify.tokens)) == 88
    assert max(profile.captured_sizes) == 1024
    assert sorted(set(profile.verify.tokens) - set(profile.captured_sizes)) == [1536, 2048, 4096, 8192, 16384]
    assert profile.context.seconds_per_token is None
    assert profile.sla_anchors == (120.0, 200.0, 300.0)


@pytest.mark.shared_data
def test_shipped_profiles_are_rebuilt_byte_for_byte(shared_data: Path) -> None:
    built: dict[str, str] = builder().build(shared_data)
    assert sorted(built) == profile_names()
    for name, text in built.items():
        assert (ROOT / "sim" / "profiles" / f"{name}.json").read_bytes() == text.encode()


@pytest.mark.shared_data
def test_measured_medians_and_running_maximum_are_the_published_ones(shared_data: Path) -> None:
    sps = shared_data / "sps"
    points = pl.read_csv(sps / "vllm_dsv4flash_tp4_b300_profile_points.csv")
    published = points.filter(pl.col("sample") == "median").sort("batch_tokens")
    curve = build_curve(load_profile(B300))
    assert curve.sizes.tolist() == published["batch_tokens"].to_list()
    # 4,096 has four of its five runs; the published median is of all five.
    known = curve.sizes != 4096
    assert np.abs(curve.medians * 1e3 - published["verify_ms"].to_numpy())[known].max() < 1e-9
    table = pl.read_csv(sps / "vllm_dsv4flash_tp4_b300_monotone_table.csv")
    ours = curve.at(table["batch_tokens"].to_numpy().astype(np.int64))
    # The table is rounded to 0.1 us and its medians were taken before rounding to 1 us.
    assert np.abs(ours - table["step_seconds"].to_numpy()).max() < 1e-6


# The two `ceil` curves that the public table also holds, and one raw curve (all sizes 1 to 1,024).
@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "row", "raw"),
    [
        (B300, "vllm_dsv4flash_tp4_b300_monotone_table", False),
        ("dsv4flash-8xh100", "dsv4_flash_fp8_8xh100_tp8ep8_ctx4k_graphpad1024", False),
        ("dsv4flash-8xh100", "dsv4_flash_fp8_8xh100_tp8ep8_ctx4k_raw", True),
        ("llama31-8b-h100", "llama31_8b_h100_tp1_ctx1k_R64_raw", True),
        ("llama31-70b-h100-tp4", "llama31_70b_h100_tp4_ctx1k_R64_raw", True),
    ],
)
def test_jaggedness_agrees_with_the_published_counts(shared_data: Path, name: str, row: str, raw: bool) -> None:
    table = pl.read_csv(shared_data / "sps" / "sps_jaggedness.csv")
    published = table.filter(pl.col("curve") == row).row(0, named=True)
    profile = load_profile(name)
    samples = np.array(profile.verify.seconds[:1024]) if raw else build_curve(profile).at(np.arange(1, 1025))
    shape = jaggedness(np.concatenate([[np.nan], samples]))
    counted = (shape.drops_over_2pct, shape.drops_over_5pct, shape.rises_over_2pct)
    assert counted == (published["n_drop_gt2pct"], published["n_drop_gt5pct"], published["n_rise_gt2pct"])
    assert shape.biggest is not None
    assert f"{shape.biggest.tokens}->{shape.biggest.tokens + 1}" == published["at_B"]
    assert round(100 * shape.biggest.drop, 2) == published["biggest_drop_pct"]


def test_default_captured_sizes_are_vllms() -> None:
    sizes = default_captured_sizes(512)
    assert sizes[:5] == [1, 2, 4, 8, 16]
    assert sizes[-3:] == [480, 496, 512]
    assert {248, 256, 272} <= set(sizes)
    assert default_captured_sizes(4) == [1, 2, 4]
    assert list(load_profile(B300).captured_sizes) == default_captured_sizes(1024)


def test_missing_profile_lists_the_nearest() -> None:
    with pytest.raises(ProfileError, match="no profile named `vllm-dsv4flash-b300`; the nearest are vllm-dsv4flash"):
        load_profile("vllm-dsv4flash-b300")
    with pytest.raises(ProfileError, match="shipped are dsv4flash-8xh100"):
        load_profile("zzz")


def test_files_are_read_by_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(fields()), encoding="utf-8")
    assert load_profile(path) == load_profile(str(path)) == parse_profile(json.dumps(fields()), "x")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{\n  'a': 1}", r"line 2: not valid JSON"),
        (b"", r"line 1: not valid JSON"),
        (b"\xff\xfe", r"not UTF-8"),
        (b"[1, 2]", r"a profile is one JSON object"),
        (b'{"name": "a", "name": "b"}', r"field `name` is given twice"),
        (None, r"No such file"),
    ],
)
def test_unreadable_files(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "mine.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ProfileError, match=message) as caught:
        load_profile(path)
    assert "mine.json" in str(caught.value)


def test_a_folder_is_no_profile(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(ProfileError, match="Is a directory"):
        load_profile(tmp_path / "folder.json")


@pytest.mark.parametrize("value", [0, -1.5, float("nan"), float("inf"), "2.0", True, None])
def test_step_times_must_be_positive_numbers(value: object) -> None:
    data = fields()
    data["verify"]["seconds"][1] = value
    message = refused(data)
    assert message.startswith("bad.json: field `verify.seconds[1]`")
    assert "got" in message


@pytest.mark.parametrize(
    ("section", "key"), [("draft", "seconds"), ("verify", "tokens"), ("draft", "rows"), (None, "sla_anchors")]
)
def test_other_numbers_must_be_positive_too(section: str | None, key: str) -> None:
    data = fields()
    (data if section is None else data[section])[key][0] = 0
    assert f"{key}[0]`" in refused(data)


@pytest.mark.parametrize("key", ["seconds", "sync_stall_seconds"])
def test_host_times_may_be_zero_but_not_negative(key: str) -> None:
    data = fields()
    data["host"][key] = -1e-9
    assert f"`host.{key}`" in refused(data)


def test_unknown_and_missing_fields() -> None:
    data = fields()
    data["verify"]["second"] = [1.0]
    assert "unknown field `verify.second`; did you mean `seconds`?" in refused(data)
    data = fields()
    del data["hardware"]
    assert "field `hardware` is missing; add it" in refused(data)
    assert "(10 problems in all)" in refused({"schema_version": 1, "name": "x", "source": "measured", "draft": None})


def test_samples_must_be_aligned() -> None:
    data = fields()
    data["verify"]["seconds"].pop()
    assert "`verify`: `seconds` must hold one entry for each of `tokens` (3), got 2" in refused(data)
    data = fields()
    data["verify"]["context"] = [1]
    assert "`context` must hold one entry" in refused(data)
    data = fields()
    data["draft"]["rows"].append(9)
    assert "`draft`: `seconds` must hold one entry for each of `rows` (3), got 2" in refused(data)


def test_captured_sizes_need_samples_and_order() -> None:
    data = fields()
    data["captured_sizes"] = [8, 12]
    assert "captured size 12 has no sample" in refused(data)
    data["captured_sizes"] = [16, 8]
    assert "must ascend" in refused(data)
    data["captured_sizes"] = [8, 8]
    assert "must ascend" in refused(data)


def test_empty_profiles_are_refused() -> None:
    data = fields()
    data["verify"] = {"tokens": [], "seconds": []}
    assert "`verify.tokens`" in refused(data)
    data = fields()
    data["provenance"] = []
    assert "`provenance`" in refused(data)


def test_unknown_source_and_version() -> None:
    data = fields()
    data["source"] = "guessed"
    assert "`source`" in refused(data)
    assert '"guessed"' in refused(data)
    data = fields()
    data["schema_version"] = 2
    assert "`schema_version`" in refused(data)
