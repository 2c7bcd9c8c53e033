"""Charts: reduction keeps spikes, both ways of counting agree, nothing non-finite reaches an axis."""

from __future__ import annotations

import math
from array import array

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from oelm_tui.charts import reduce as reduction
from oelm_tui.charts.axes import count_label, linear_ticks, log_ticks, tick_labels, time_label, time_ticks
from oelm_tui.charts.grid import draw_grid, has_room
from oelm_tui.charts.plot import AxisMark, ChartView, Panel, PlotCurve, draw
from oelm_tui.charts.smooth import Smoother

VALUES = st.lists(st.floats(-1e6, 1e6) | st.just(math.nan) | st.just(math.inf), min_size=1, max_size=200)


def text_of(picture) -> list[str]:
    return ["".join(text for text, _ in row) for row in picture.rows]


@settings(max_examples=60, deadline=None)
@given(ys=VALUES, columns=st.integers(1, 40))
def test_numpy_and_plain_reduction_give_the_same_buckets(ys, columns):
    xs = array("d", range(len(ys)))
    values = array("d", ys)
    high = max(1.0, len(ys) - 1)
    assert reduction._plain(xs, values, 0.0, high, columns) == reduction._with_numpy(xs, values, 0.0, high, columns)


def test_a_single_spike_survives_the_reduction_of_half_a_million_points():
    xs, ys = array("d", range(500_000)), array("d", bytes(8 * 500_000))
    ys[123_456] = 99.0
    assert max(bucket.high for bucket in reduction.reduce(xs, ys, 0, 499_999, 160)) == 99.0


def test_points_outside_the_window_are_left_out():
    xs = array("d", range(10))
    assert [b.first for b in reduction.reduce(xs, xs, 3, 5, 3)] == [3, 4, 5]


def test_a_live_column_can_still_grow_after_it_was_drawn():
    xs = array("d", range(30_000))
    draw(Panel([PlotCurve("a", xs, xs, "arm0")]), ChartView(), 60, 10)
    xs.append(30_000)
    assert len(xs) == 30_001


@settings(max_examples=30, deadline=None)
@given(ys=VALUES, weight=st.sampled_from([0.5, 0.9, 0.99]))
def test_block_smoothing_equals_the_plain_recurrence(ys, weight):
    plain, blocks = Smoother(weight), Smoother(weight)
    plain._extend_plain(ys)
    blocks._extend_blocks(ys)
    assert list(blocks.values) == pytest.approx(list(plain.values), rel=1e-6, abs=1e-3, nan_ok=True)


def test_smoothing_in_pieces_equals_smoothing_at_once_and_starts_over_when_the_file_was_cut():
    ys = array("d", [math.sin(i) for i in range(100)])
    whole = list(Smoother(0.9).extend_to(ys))
    pieces = Smoother(0.9)
    pieces.extend_to(ys[:40])
    assert list(pieces.extend_to(ys)) == whole
    assert list(pieces.extend_to(ys[:10])) == whole[:10]


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize(("width", "height"), [(16, 4), (60, 10), (300, 100)])
def test_a_chart_fills_exactly_the_cells_it_was_given(width, height, ascii_only):
    xs = array("d", range(50))
    rows = text_of(
        draw(Panel([PlotCurve("a", xs, xs, "arm0")]), ChartView(cursor=10), width, height, ascii_only=ascii_only)
    )
    assert len(rows) == height
    assert max(len(row) for row in rows) <= width
    if ascii_only:
        assert "".join(rows[1:]).isascii()


def test_non_finite_values_never_reach_the_axis_and_are_said_in_the_legend():
    ys = array("d", [3.0, 2.0, math.inf, 1.0, math.nan])
    rows = text_of(draw(Panel([PlotCurve("a", array("d", range(5)), ys, "arm0")], "loss"), ChartView(), 60, 10))
    assert "(now not finite)" in rows[0]
    assert not any("nan" in row or "inf" in row for row in rows[1:])


def test_a_curve_with_nothing_finite_says_so():
    rows = text_of(draw(Panel([PlotCurve("a", [1.0], [math.nan], "arm0")]), ChartView(), 60, 10))
    assert "none of them finite" in rows[0]


def test_zero_on_a_log_axis_is_left_out_instead_of_breaking_it():
    xs = array("d", range(4))
    rows = text_of(
        draw(Panel([PlotCurve("a", xs, array("d", [0.0, 1.0, 10.0, 100.0]), "arm0")]), ChartView(log_y=True), 60, 12)
    )
    assert any(row.lstrip().startswith("100") for row in rows)


def test_the_cursor_reads_the_nearest_recorded_value_of_each_curve():
    xs = array("d", [0, 10, 20])
    curves = [PlotCurve("a", xs, array("d", [1, 2, 3]), "arm0"), PlotCurve("b", xs, array("d", [4, 5, 6]), "arm1", "▲")]
    assert draw(Panel(curves), ChartView(cursor=11), 60, 10).readings == {"a": (10, 2), "b": (10, 5)}


def test_what_is_read_off_a_smoothed_curve_are_the_measured_values():
    xs, raw = array("d", [290, 300, 310, 320]), array("d", [0.9, 0.5, 0.306, 0.4])
    smooth = Smoother(0.9).extend_to(raw)
    picture = draw(Panel([PlotCurve("a", xs, smooth, "arm0", raw=raw)]), ChartView(cursor=310), 60, 10)
    assert picture.readings == {"a": (310, 0.306)}
    assert "0.306  at step 310" in text_of(picture)[0]
    assert " 0.4 " in text_of(draw(Panel([PlotCurve("a", xs, smooth, "arm0", raw=raw)]), ChartView(), 60, 10))[0]


def test_a_smoothed_curve_lies_over_the_pale_values_it_smooths():
    xs = array("d", range(200))
    raw = array("d", [(x % 2) * 2.0 for x in range(200)])  # up and down through the whole chart
    picture = draw(Panel([PlotCurve("a", xs, array("d", [1.0] * 200), "arm0", raw=raw)]), ChartView(), 60, 12)
    body = [part for row in picture.rows[1:-2] for part in row[1:]]
    line = "".join(text for text, role in body if role == "arm0")
    assert set(line) <= set("⠉⠒⠤⣀●"), line  # one dot high: nothing of the raw values is in its cells
    assert any(role == "faint" for _, role in body)


def test_curves_carry_their_own_sign_so_that_colour_is_not_needed():
    xs = array("d", range(100))
    curves = [PlotCurve("a", xs, xs, "arm0", "●"), PlotCurve("b", xs, xs[::-1], "arm1", "▲")]
    body = "".join(text_of(draw(Panel(curves), ChartView(), 60, 12))[1:])
    assert "●" in body
    assert "▲" in body


def test_a_mouse_column_becomes_the_x_under_it():
    xs = array("d", range(101))
    picture = draw(Panel([PlotCurve("a", xs, xs, "arm0")]), ChartView(), 60, 10)
    assert picture.x_of_column(0) == 0
    assert picture.x_of_column(picture.left + picture.columns // 2) == pytest.approx(50, abs=2)
    assert picture.x_of_column(400) == 100


def test_ticks_are_round_and_within_the_axis():
    assert linear_ticks(0, 100_000, 5) == [0, 20_000, 40_000, 60_000, 80_000, 100_000]
    assert log_ticks(0.001, 10, 5) == [0.001, 0.01, 0.1, 1, 10]
    assert time_ticks(0, 7200, 4) == [0, 1800, 3600, 5400, 7200]
    assert [count_label(v) for v in (0, 950, 12_500, 2e6)] == ["0", "950", "12.5k", "2M"]
    assert [time_label(v) for v in (5, 90, 3600, 5400)] == ["5s", "1m30s", "1h", "1h30"]


def test_every_tick_is_labelled_with_its_own_value():
    """2.5, 7.5 and 12.5 were once written 2, 8 and 12, and a learning rate of 2.5e-4 as 2e-4."""
    assert tick_labels([2.5, 5.0, 7.5, 10.0, 12.5]) == ["2.5", "5.0", "7.5", "10.0", "12.5"]
    assert tick_labels([0.0, 2.5e-4, 5e-4, 7.5e-4, 1e-3]) == ["0", "2.5e-4", "5e-4", "7.5e-4", "1e-3"]
    assert tick_labels([1.2e5, 1.25e5]) == ["1.2e5", "1.25e5"]
    assert tick_labels([49.0, 50.0]) == ["49", "50"]
    assert tick_labels([1e-4, 1e-2, 1.0, 100.0]) == ["1e-4", "0.01", "1", "100"]


@settings(deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 40))
def test_no_two_ticks_of_an_axis_read_the_same(low, span, at_most):
    ticks = linear_ticks(low, low + span, at_most)
    assume(span > abs(low) * 1e-3)
    labels = tick_labels(ticks)
    assert len(set(labels)) == len(ticks)


def test_a_band_is_drawn_palely_beneath_its_curve_and_within_the_axis():
    xs, ys = array("d", range(10)), array("d", [5.0] * 10)
    band = array("d", [2.0] * 10), array("d", [9.0] * 10)
    picture = draw(Panel([PlotCurve("a", xs, ys, "arm2", band=band)]), ChartView(), 60, 16)
    pale = [row for row in picture.rows if any(role == "arm2-pale" for _, role in row)]
    curve = [row for row in picture.rows[1:] if any(role == "arm2" for _, role in row)]
    assert len(pale) > 8
    assert len(curve) == 1
    assert picture.rows.index(pale[0]) < picture.rows.index(curve[0]) < picture.rows.index(pale[-1])


@pytest.mark.parametrize("ascii_only", [False, True])
def test_what_happened_is_marked_on_the_axis_and_a_let_go_layer_up_the_chart(ascii_only):
    xs = array("d", range(101))
    marks = [AxisMark(50, "!", through=True), AxisMark(100, "c", "key"), AxisMark(200, "c")]
    rows = draw(Panel([PlotCurve("a", xs, xs, "arm0")], marks=marks), ChartView(), 60, 12, ascii_only=ascii_only).rows
    axis = "".join(text for text, _ in rows[-2])
    assert axis.count("!") == axis.count("c") == 1  # what is out of view is not drawn
    assert axis.endswith("c")
    crossed = [row for row in rows[1:-2] if ("!", "faint") in row]
    assert len(crossed) >= 8
    assert all("".join(text for text, _ in row).index("!") == axis.index("!") for row in crossed)


def test_an_axis_says_that_it_is_logarithmic():
    curve = PlotCurve("a", [1.0, 2.0], [1.0, 100.0], "arm0")
    assert text_of(draw(Panel([curve], "loss"), ChartView(log_y=True), 60, 12))[0].startswith("loss (log)  ")
    below_zero = PlotCurve("a", [1.0, 2.0], [-1.0, -2.0], "arm0")  # cannot be
    assert text_of(draw(Panel([below_zero], "loss"), ChartView(log_y=True), 60, 12))[0].startswith("loss  ")


@pytest.mark.parametrize("height", [15, 16, 31])
def test_four_charts_fill_their_place_and_share_x_and_cursor(height):
    long, late = PlotCurve("a", range(101), range(101), "arm0"), PlotCurve("b", [50, 100], [1.0, 2.0], "arm1")
    panels = [Panel([curve], name) for curve, name in zip((long, late, long, late), "wxyz", strict=True)]
    rows, placed = draw_grid(panels, ChartView(cursor=50), 81, height)
    assert len(rows) == height
    assert rows[0] == [("● a  ", "arm0"), ("● b  ", "arm1"), ("at step 50", "label")]
    assert max(sum(len(text) for text, _ in row) for row in rows) <= 81
    assert {(one.picture.x0, one.picture.x1) for one in placed} == {(0, 100)}
    assert [next(iter(one.picture.readings.values())) for one in placed] == [(50, 50), (50, 1.0)] * 2
    assert [one.left for one in placed] == [0, 41, 0, 41]
    assert has_room(81, height)
    assert not has_room(60, height)


def test_the_legend_of_a_grid_counts_the_curves_that_it_cannot_name():
    curves = [PlotCurve(f"demo-gpt-arm s{seed}", [1.0, 2.0], [1.0, 2.0], "arm0") for seed in range(40, 48)]
    rows, _ = draw_grid([Panel(curves, "loss")] * 4, ChartView(), 76, 20)
    assert (
        "".join(text for text, _ in rows[0]) == "".join(f"● arm s{seed}  " for seed in range(40, 45)) + "and 3 more  "
    )
