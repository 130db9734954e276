"""Draws reports of kolo-perf, or of kolo-simulate, as one SVG: time, bus bandwidth and ratio by size. Used by
tools/bench.

Written by hand, since it needs some panels of lines and nothing else: no library to install.
"""
import math
from collections import defaultdict
from statistics import median
from xml.sax.saxutils import escape

from peers.table import size_text

WIDTH, HEIGHT = 460, 380
LEFT, TOP, GAP, LEGEND = 70, 60, 80, 190
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6d31", "#7f7f7f",
           "#9467bd")
LIMIT = "memcpy (limit)"
CHOSEN = "chosen by kolo"


class Panel:
    """Axes with logarithms on both sides, at the n-th place from the left."""

    def __init__(self, place, title, unit, sizes, values, around=()):
        self.left = LEFT + place * (WIDTH + GAP)
        self.title, self.unit = title, unit
        self.x0, self.x1 = math.log(min(sizes)), math.log(max(max(sizes), 2 * min(sizes)))
        values = [value for value in [*values, *around] if value > 0] or [1]
        self.y0, self.y1 = math.log10(min(values)), math.log10(max(values))
        margin = max(0.05 * (self.y1 - self.y0), 0.05)
        self.y0, self.y1 = self.y0 - margin, self.y1 + margin
        self.sizes = sizes

    def x(self, size):
        return self.left + (math.log(size) - self.x0) / (self.x1 - self.x0) * WIDTH

    def y(self, value):
        return TOP + HEIGHT - (math.log10(value) - self.y0) / (self.y1 - self.y0) * HEIGHT

    def ticks(self):
        steps = (1,) if self.y1 - self.y0 > 3 else (1, 2, 5)
        for power in range(math.floor(self.y0), math.ceil(self.y1) + 1):
            for step in steps:
                if self.y0 <= math.log10(step * 10.0 ** power) <= self.y1:
                    yield step * 10.0 ** power

    def frame(self):
        yield text(self.left + WIDTH / 2, TOP - 14, f"{self.title} ({self.unit})", anchor="middle", size=14)
        yield (f'<rect x="{self.left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" '
               'stroke="#888"/>')
        for value in self.ticks():
            yield line([(self.left, self.y(value)), (self.left + WIDTH, self.y(value))], "#ddd", 1)
            yield text(self.left - 6, self.y(value) + 4, f"{value:g}", anchor="end")
        for size in self.sizes[::max(1, math.ceil(len(self.sizes) / 8))]:
            yield line([(self.x(size), TOP), (self.x(size), TOP + HEIGHT)], "#eee", 1)
            yield text(self.x(size), TOP + HEIGHT + 18, size_text(size), anchor="middle", size=10)

    def curve(self, points, colour, width=1.5, dash=""):
        points = [(self.x(size), self.y(value)) for size, value in sorted(points.items()) if value > 0]
        yield line(points, colour, width, dash)
        for x, y in points:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{1.5 + width / 2}" fill="{colour}"/>'

    def whisker(self, size, low, high, colour):
        return line([(self.x(size), self.y(low)), (self.x(size), self.y(high))], colour, 1)


def line(points, colour, width, dash=""):
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>'


def text(x, y, what, anchor="start", size=11):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(what)}</text>'


def prevailing_state(reports, collective):
    samples = defaultdict(int)
    for report in reports:
        for row in report["rows"]:
            if row["collective"] == collective:
                samples[row["state"]] += row["samples"]
    if not samples:
        raise SystemExit(f"plot: no rows of {collective}")
    return max(samples, key=samples.get)


def collected(reports, collective, state, in_place):
    """Times and bandwidths by engine and size, each the median over the files; ratios by peer."""
    times, bandwidths = (defaultdict(lambda: defaultdict(list)) for _ in range(2))
    ratios = defaultdict(dict)
    kinds = set()
    for report in reports:
        for row in report["rows"]:
            if row["collective"] != collective or row["state"] != state or row["size"] == 0:
                continue
            kinds.add((row["type"], row["redop"] or "", report["ranks"]))
            for result in row["results"]:
                is_limit = result["engine"] == "memcpy"
                if result["in_place"] != in_place and not is_limit:
                    continue
                name = LIMIT if is_limit else result["engine"]
                times[name][row["size"]].append(result["time_us"])
                bandwidths[name][row["size"]].append(result["busbw_GBps"])
            for ratio in row["ratios"]:
                if ratio["in_place"] == in_place and ratio["peer"] != "memcpy":
                    ratios[ratio["peer"]][row["size"]] = (ratio["p10"], ratio["median"], ratio["p90"])
    if len(kinds) > 1:
        raise SystemExit(f"plot: the files mix types, operations or numbers of ranks: {sorted(kinds)}")
    if "kolo" not in times:
        raise SystemExit(f"plot: no results of {collective} in this form in state {state}")
    flat = [{name: {size: median(values) for size, values in sizes.items()}
             for name, sizes in table.items()} for table in (times, bandwidths)]
    return *flat, ratios, kinds.pop()


def draw(reports, collective, state, in_place):
    """The SVG's text. Reports are those of kolo-perf -J; the state is chosen if it is None."""
    state = state or prevailing_state(reports, collective)
    times, bandwidths, ratios, (kind, op, ranks) = collected(reports, collective, state, in_place)
    names = ["kolo", *sorted(set(times) - {"kolo", LIMIT}), *({LIMIT} & set(times))]
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    colours["kolo"], colours[LIMIT] = "#000000", "#999999"
    sizes = sorted({size for by_size in times.values() for size in by_size})
    panels = [Panel(place, title, unit, sizes, [v for by_size in table.values() for v in by_size.values()])
              for place, title, unit, table in ((0, "time", "µs", times),
                                                (1, "bus bandwidth", "GB/s", bandwidths))]
    out = []
    for panel, table in zip(panels, (times, bandwidths)):
        out += panel.frame()
        for name in reversed(names):
            out += panel.curve(table[name], colours[name], 2.5 if name == "kolo" else 1.5,
                               "6 4" if name == LIMIT else "")
    if ratios:
        last = Panel(2, "kolo / peer: below 1 kolo is faster", "ratio, 10 % to 90 %", sizes,
                     [v for by_size in ratios.values() for three in by_size.values() for v in three], [1])
        panels.append(last)
        out += last.frame()
        out.append(line([(last.left, last.y(1)), (last.left + WIDTH, last.y(1))], "#000", 1.5))
        for name, by_size in ratios.items():
            out += last.curve({size: three[1] for size, three in by_size.items()}, colours[name])
            out += [last.whisker(size, three[0], three[2], colours[name])
                    for size, three in by_size.items() if three[0] > 0]
    form = "in place" if in_place else "out of place"
    title = " ".join(filter(None, (collective, kind, op, f"{form}, {ranks} ranks")))
    return page(out, panels, title + ("" if state == "-" else f", machine's state: {state}"),
                {name: (colours[name], "6 4" if name == LIMIT else "") for name in names})


def draw_simulated(reports, collective):
    """The SVG's text: a panel for each machine, and in it a line for each algorithm. Reports are those of
    kolo-simulate --json."""
    machines = defaultdict(lambda: defaultdict(dict))
    for row in (row for report in reports for row in report["rows"]):
        if row.get("collective") != collective or "time_us" not in row:  # or it could not be played
            continue
        per_host = row["ranks"] // row["hosts"]
        times = machines[f"{row['hosts']} hosts" + (f" × {per_host} ranks" if per_host > 1 else "")]
        times[row["algorithm"]][row["size"]] = row["time_us"]
        if row["chosen"]:
            times[CHOSEN][row["size"]] = row["time_us"]
    if not machines:
        raise SystemExit(f"plot: no times of {collective}")
    names = list(dict.fromkeys(name for times in machines.values() for name in times if name != CHOSEN))
    styles = {name: (COLOURS[i % len(COLOURS)], "") for i, name in enumerate(names)}
    styles[CHOSEN] = ("#000000", "2 4")
    out, panels = [], []
    for place, (machine, times) in enumerate(machines.items()):
        sizes = sorted({size for by_size in times.values() for size in by_size})
        panels.append(Panel(place, f"time, {machine}", "µs", sizes,
                            [value for by_size in times.values() for value in by_size.values()]))
        out += panels[-1].frame()
        for name, (colour, dash) in styles.items():
            if name in times:
                out += panels[-1].curve(times[name], colour, dash=dash)
    return page(out, panels, f"{collective}, simulated", styles)


def page(out, panels, title, styles):
    """The panels' elements with a title, and a legend of the (colour, dash) by name."""
    legend = panels[-1].left + WIDTH + 20
    for i, (name, (colour, dash)) in enumerate(styles.items()):
        y = TOP + 12 + 20 * i
        out.append(line([(legend, y), (legend + 24, y)], colour, 2.5, dash))
        out.append(text(legend + 30, y + 4, name))
    out.append(text(LEFT, 24, title, size=16))
    width, height = legend + LEGEND, TOP + HEIGHT + 40
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            'font-family="sans-serif">\n<rect width="100%" height="100%" fill="#fff"/>\n'
            + "\n".join(out) + "\n</svg>\n")
