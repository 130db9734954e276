"""The ratios kolo / peer of some reports, as text; used by tools/bench."""


def size_text(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def number(ratio):
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}"


def key_of(row):
    return row["collective"], row["type"], row["redop"] or "", row["size"]


def cell(report, key, in_place):
    """Median ratio and spread, one state of the machine after the other."""
    cells = []
    for row in report["rows"]:
        if key_of(row) != key:
            continue
        wrong = {result["engine"] for result in row["results"]
                 if result["in_place"] == in_place and result["wrong"]}
        for ratio in row["ratios"]:
            if ratio["in_place"] != in_place or ratio["peer"] == "memcpy":
                continue
            state = f" {row['state']}" if row["state"] != "-" else ""
            state += "*" if row["busy"] >= 0.1 else ""
            cells.append("WRONG" if wrong & {"kolo", ratio["peer"]} else
                         f"{number(ratio['median'])} ({number(ratio['p10'])}-{number(ratio['p90'])}){state}")
    return "; ".join(cells) or "N/A"


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
