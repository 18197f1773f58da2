#!/usr/bin/env python3
"""Draws SVG charts of reports that ./lockstep bench wrote with --json.

ratios.svg  how many times as long peers take, by case, ranks and transport
cost.svg    how the time of a step grows with parameters and ranks: bench cost

Equal reports give equal bytes. Exit codes: 0 drawn; 1 a report cannot be read, or there
is nothing to draw; 2 usage.
"""
import argparse
import json
import sys
from pathlib import Path

# In the order in which they are drawn.
PEERS = {
    "zero": "step: DDP + ZeRO",
    "zero_fused": "step: DDP + ZeRO, fused",
    "fairscale": "step: fairscale",
    "ddp_buffers_hot": "buffers, hot: DDP",
    "ddp_buffers_cold": "buffers, cold: DDP",
    "gloo_broadcast": "broadcast: Gloo",
    "train_ddp": "training: DDP + ZeRO, fused",
    "train_ddp_tuned": "training: the same, views of buckets",
}
# Of Okabe and Ito: also told apart by those who do not see all colours.
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]


class ChartError(Exception):
    """What is wrong with the reports, for people."""


def read_report(path):
    try:
        report = json.loads(Path(path).read_text())
    except (OSError, ValueError) as e:
        raise ChartError(f"cannot read {path}: {e}") from e
    if not isinstance(report, dict) or not isinstance(report.get("results"), list):
        raise ChartError(f"{path} is no report of ./lockstep bench: it has no list of results")
    return report


def ranks_text(ranks):
    return f"{ranks} rank" if ranks == 1 else f"{ranks} ranks"


def size_text(elements):
    return f"{elements / 1e6:g} M" if elements >= 1e6 else f"{elements}"


def collect_ratios(reports):
    """{(transport, ranks): {ratio: value}}, of peers. `reports`: {path: report}."""
    series, origins = {}, {}
    for path, report in reports.items():
        for name, value in report.get("ratios", {}).items():
            if name not in PEERS:
                continue
            key = (report["transport"], report["ranks"])
            first = origins.setdefault((key, name), path)
            if first != path:
                raise ChartError(f"{first} and {path} both have {name} over {key[0]} at "
                                 f"{ranks_text(key[1])}; give one of them")
            series.setdefault(key, {})[name] = value
    # Shared memory first.
    return dict(sorted(series.items(), key=lambda item: (item[0][0] != "shm", item[0])))


def collect_costs(reports):
    """{(case, ranks): [(parameters, ms), ...]}, by size, of the reports of `bench cost`."""
    lines = {}
    for path, report in reports.items():
        if report.get("bench") != "cost":
            continue
        for result in report["results"]:
            points = lines.setdefault((result["name"], result["ranks"]), {})
            if result["parameters"] in points:
                raise ChartError(f"{path} repeats {result['name']} of {result['parameters']} "
                                 f"parameters at {ranks_text(result['ranks'])}; give one report")
            points[result["parameters"]] = result["median_ms"]
    return {key: sorted(points.items()) for key, points in sorted(lines.items())}


def load_pyplot():
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot
    pyplot.rcParams.update({
        "svg.hashsalt": "lockstep",  # else its ids are random
        "svg.fonttype": "none",      # text stays text
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "grid.color": "#dddddd",
        "figure.facecolor": "white",
    })
    return pyplot


def save(pyplot, figure, path):
    # Neither time nor version.
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def draw_ratios(series, path):
    pyplot = load_pyplot()
    names = [name for name in PEERS if any(name in ratios for ratios in series.values())]
    height = 0.8 / len(series)
    figure, axes = pyplot.subplots(
        figsize=(8, 1.6 + 0.25 * len(names) * (1 + len(series))), layout="constrained")
    for index, ((transport, ranks), ratios) in enumerate(series.items()):
        drawn = [(place, ratios[name]) for place, name in enumerate(names) if name in ratios]
        # On a logarithmic scale a bar begins at 1: "as fast".
        bars = axes.barh([place + (index - (len(series) - 1) / 2) * height for place, _ in drawn],
                         [value - 1 for _, value in drawn], left=1, height=0.9 * height,
                         color=COLOURS[index % len(COLOURS)],
                         label=f"{ranks_text(ranks)}, {transport}")
        for bar, (_, value) in zip(bars, drawn):
            axes.annotate(f"{value:.2f}" if value < 10 else f"{value:.1f}",
                          (max(value, 1), bar.get_y() + bar.get_height() / 2),
                          xytext=(3, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.tick_params(axis="x", which="minor", labelsize=7)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(names)), [PEERS[name] for name in names])
    axes.invert_yaxis()
    axes.grid(axis="x", which="both")
    axes.margins(x=0.1)
    axes.set_xlabel("the peer's time / Lockstep's (ratio of medians; above 1: Lockstep is faster)")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    axes.set_title("Lockstep beside its peers")
    save(pyplot, figure, path)


def draw_costs(lines, path):
    pyplot = load_pyplot()
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    worlds = sorted({ranks for _, ranks in lines})
    for (case, ranks), points in lines.items():
        index = worlds.index(ranks)
        colour = COLOURS[index % len(COLOURS)]
        sizes, times = zip(*points)
        if case == "step":
            axes.plot(sizes, times, color=colour, marker=MARKERS[index % len(MARKERS)],
                      linewidth=1.8, label=ranks_text(ranks))
        else:
            axes.plot(sizes, times, color=colour, linewidth=0.7, linestyle="--")
    axes.plot([], [], color="#555555", linewidth=0.7, linestyle="--", label="bandwidth probe")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    sizes = sorted({size for points in lines.values() for size, _ in points})
    axes.set_xticks(sizes, [size_text(size) for size in sizes])
    axes.minorticks_off()
    axes.grid()
    axes.set_xlabel("parameters (float32 elements)")
    axes.set_ylabel("time of one AdamW step (median, ms)")
    axes.legend(frameon=False)
    axes.set_title("How the cost of a step grows")
    save(pyplot, figure, path)


def draw_all(paths, out):
    """The files it wrote."""
    reports = {str(path): read_report(path) for path in paths}
    ratios, costs = collect_ratios(reports), collect_costs(reports)
    if not ratios and not costs:
        raise ChartError("nothing to draw: the reports have neither ratios against peers (--peers) "
                         "nor results of bench cost")
    out.mkdir(parents=True, exist_ok=True)
    written = []
    if ratios:
        written.append(out / "ratios.svg")
        draw_ratios(ratios, written[-1])
    if costs:
        written.append(out / "cost.svg")
        draw_costs(costs, written[-1])
    return written


def main():
    parser = argparse.ArgumentParser(prog="./lockstep bench charts", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", metavar="FILE", nargs="+", help="a report")
    parser.add_argument("--out", metavar="DIR", type=Path, required=True,
                        help="folder that takes the charts")
    flags = parser.parse_args()
    try:
        for path in draw_all(flags.files, flags.out):
            print(path)
    except (ChartError, OSError) as e:
        print(f"charts: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
