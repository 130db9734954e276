"""The ratios kolo / peer of some reports, as text or for programs; used by tools/bench."""
# What is read of a report, here and in plot.py.
ROW = ("collective", "type", "redop", "size", "state", "busy", "samples", "results", "ratios")
RESULT = ("engine", "in_place", "time_us", "busbw_GBps", "wrong")
RATIO = ("in_place", "peer", "median", "p10", "p90")


def what_lacks(report):
    """Which key a report lacks, or what is of another kind; None for a whole one."""
    try:
        report["ranks"]
        for row in report["rows"]:
            parts = [(row, ROW), *((result, RESULT) for result in row["results"]),
                     *((ratio, RATIO) for ratio in row["ratios"])]
            for part, keys in parts:
                for key in keys:
                    part[key]
    except KeyError as error:
        return f"{error} is missing"
    except TypeError as error:
        return str(error)
    return None


def title_of(report, name):
    """The peer's, or that name for a report of kolo-perf alone; with the protocol that is no default."""
    title = report.get("peer", {}).get("title", name)
    protocol = report.get("options", {}).get("protocol", "kolo")
    return title if protocol == "kolo" else f"{title}, {protocol}"


def size_text(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def number(ratio):
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}"


def key_of(row):
    return row["collective"], row["type"], row["redop"] or "", row["size"]


def ratios_of(row):
    """(ratio, whether kolo's or the peer's result was wrong) of each peer and form."""
    for ratio in row["ratios"]:
        if ratio["peer"] != "memcpy":
            yield ratio, any(result["wrong"] for result in row["results"]
                             if result["in_place"] == ratio["in_place"]
                             and result["engine"] in ("kolo", ratio["peer"]))


def cell(report, key, in_place):
    """Median ratio and spread, one state of the machine after the other."""
    cells = []
    for row in report["rows"]:
        if key_of(row) != key:
            continue
        for ratio, is_wrong in ratios_of(row):
            if ratio["in_place"] != in_place:
                continue
            state = f" {row['state']}" if row["state"] != "-" else ""
            state += "*" if row["busy"] >= 0.1 else ""
            cells.append("WRONG" if is_wrong else
                         f"{number(ratio['median'])} ({number(ratio['p10'])}-{number(ratio['p90'])}){state}")
    return "; ".join(cells) or "N/A"


def entries(reports):
    """The table for programs: a ratio each. reports: (title, report) each."""
    return [{"report": title, **{key: row[key] for key in ROW[:6]}, **ratio, "wrong": is_wrong}
            for title, report in reports for row in report["rows"] for ratio, is_wrong in ratios_of(row)]


def print_tables(reports, reasons):
    """reports: (title, report) each; reasons: (name, why not) each."""
    keys = list(dict.fromkeys(key_of(row) for _, report in reports for row in report["rows"]))
    for in_place in (False, True):
        rows = [["kolo/peer, " + ("in place" if in_place else "out of place"),
                 *(title for title, _ in reports)]]
        for key in keys:
            cells = [cell(report, key, in_place) for _, report in reports]
            if any(text != "N/A" for text in cells):
                rows.append([" ".join([*filter(None, key[:3]), size_text(key[3])]), *cells])
        if len(rows) == 1:
            continue
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        for row in rows:
            print("  ".join(text.rjust(width) if i else text.ljust(width)
                            for i, (text, width) in enumerate(zip(row, widths))))
        print()
    if any(row["busy"] >= 0.1 for _, report in reports for row in report["rows"]):
        print("*: other programs ran meanwhile; measure again when they have ended\n")
    for name, reason in reasons:
        print(f"{name}: {reason}")
