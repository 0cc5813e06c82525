#!/usr/bin/env python3
"""Draws what the bench wrote: plot.py OUT.png FILE.json...  (cells, or scale curves if the files hold curves)."""

import json
import statistics
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ORDER = ["splice", "haproxy", "nginx", "envoy", "vllm-router", "sglang-router",
         "evenkeel", "evenkeel-norec", "evenkeel-off"]
COLOURS = dict(zip(ORDER, ["#9e9e9e", "#4878a8", "#7ba6cf", "#8b7ab8", "#c0a23d", "#d9c77a",
                           "#c8442c", "#e07b5f", "#efb09b"]))
AXES = {
    "streams": ("streams, 10 events a second each (4,000: 2.5)", True),
    "size": ("bytes of an event, 200 streams, 20 events a second each", True),
    "instances": ("instances, 200 streams, 20 events a second each", True),
    "rate": ("events a second of 1,000 streams", True),
    "workers": ("workers, not pinned, 1,000 streams", False),
}


def read(paths):
    """All rows, the rounds of each file numbered on."""
    rows, past = [], 0
    for path in paths:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)["rows"]
        for row in found:
            row["round"] += past
        rows += found
        past = max([past] + [row["round"] for row in rows])
    return rows


def spread(values):
    """Median, and how far least and greatest are from it."""
    middle = statistics.median(values)
    return middle, middle - min(values), max(values) - middle


def added_p99(rows, cell, proxy):
    direct = {row["round"]: row["ttft_ms"][1] for row in rows if row["cell"] == cell and row["proxy"] == "direct"}
    return [row["ttft_ms"][1] - direct[row["round"]] for row in rows
            if row["cell"] == cell and row["proxy"] == proxy and row["round"] in direct and row["ttft_ms"][1] is not None]


def cpu(rows, cell, proxy):
    return [row["cpu_us"] for row in rows if row["cell"] == cell and row["proxy"] == proxy and row["cpu_us"] is not None]


def bars(axes, rows, cell, figure, label):
    names = [name for name in ORDER if figure(rows, cell, name)]
    for place, name in enumerate(reversed(names)):
        middle, down, up = spread(figure(rows, cell, name))
        axes.barh(place, middle, color=COLOURS[name], xerr=[[down], [up]], error_kw={"elinewidth": 1, "capsize": 2.5, "ecolor": "#333333"})
        text = f"{middle:.2f}" if abs(middle) < 10 else f"{middle:.1f}"
        axes.annotate(text, (max(middle, 0) + up, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(len(names)), list(reversed(names)), fontsize=8)
    axes.set_xlabel(label, fontsize=8)
    axes.margins(x=0.18)
    axes.axvline(0, color="#333333", linewidth=0.8)


def draw_cells(rows, out):
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    figure, grid = plt.subplots(len(cells), 2, figsize=(11, 2.7 * len(cells)), squeeze=False, layout="constrained")
    for line, cell in zip(grid, cells):
        rounds = len({row["round"] for row in rows if row["cell"] == cell})
        bars(line[0], rows, cell, cpu, "CPU µs an event")
        bars(line[1], rows, cell, added_p99, "added TTFT P99, ms")
        line[0].set_title(f"{cell} ({rounds} rounds: median, least to greatest)", fontsize=9, loc="left")
    finish(figure, grid, out)


def draw_curves(rows, out):
    curves = list(dict.fromkeys(row["on_curve"][0] for row in rows))
    panels = [(curve, "steady_cpu_us", "CPU µs an event, all streams open") for curve in curves]
    if "streams" in curves:
        panels.append(("streams", "peak_kb", "peak resident memory, MB"))
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    figure, grid = plt.subplots(down, across, figsize=(4.4 * across, 3.3 * down), squeeze=False, layout="constrained")
    for axes in grid.flat[len(panels):]:
        axes.set_visible(False)
    for axes, (curve, key, label) in zip(grid.flat, panels):
        scale = 1 / 1024 if key == "peak_kb" else 1
        for name in ORDER:
            points = {}
            for row in rows:
                if row["on_curve"][0] == curve and row["proxy"] == name:
                    value = row[key] if row[key] is not None else row["cpu_us"]
                    points.setdefault(row["on_curve"][1], []).append(value * scale)
            if points:
                places = sorted(points)
                middle, least, most = zip(*(spread(points[x]) for x in places))
                axes.errorbar(places, middle, yerr=[least, most], marker="o", markersize=4, capsize=3, color=COLOURS[name], label=name)
        text, logarithmic = AXES[curve]
        if logarithmic:
            axes.set_xscale("log")
        ticks = sorted({row["on_curve"][1] for row in rows if row["on_curve"][0] == curve})
        axes.set_xticks(ticks, [f"{x:,.0f}" for x in ticks], fontsize=8)
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel(text, fontsize=8)
        axes.set_title(label, fontsize=9, loc="left")
        axes.legend(fontsize=8, frameon=False)
    finish(figure, grid, out)


def finish(figure, grid, out):
    for axes in grid.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(axis="x", labelsize=8)
    figure.savefig(out, dpi=130)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    rows = read(sys.argv[2:])
    curves = [row for row in rows if row["on_curve"]]
    if curves:
        draw_curves(curves, sys.argv[1])
    else:
        draw_cells(rows, sys.argv[1])


main()
