"""tools/bench chooser: the algorithm that kolo chooses beside every other one, by size, ranks and hosts
(hosts.py). kolo-chooser measures; this starts it and sums up."""
import json
import subprocess
import sys

from peers import hosts

WORLDS = "1x2,1x3,1x4,2x1,3x1,4x1,2x2"


def verdict(row, limit):
    """Whether a row's choice is as good as it has to be. Both figures are of the same algorithm where it
    can be forced, and what is measured twice counts with its better."""
    return min(row["ratio"], row["ratio_forced"]) <= limit


def overtaken_by(rows, index, limit):
    """The size of a larger all-reduce that takes less time, by more than the limit; 0: there is none."""
    time = rows[index]["times_us"]["auto"]
    return next((row["size"] for row in rows[index + 1:] if limit * row["times_us"]["auto"] < time), 0)


def measure(options, program):
    """What tools/bench chooser prints; its exit status: 1 if a choice is slower than the limit, or than a
    larger all-reduce."""
    report = []
    for rate in options.rate:
        for on_hosts, per_host in options.worlds:
            if on_hosts == 1 and rate != options.rate[0]:
                continue
            label = f"{on_hosts} x {per_host} ranks" + (f", {rate}" if on_hosts > 1 else "")
            arguments = ["-b", options.minbytes, "-e", options.maxbytes, "-f", options.stepfactor,
                         "-n", str(options.samples), "--budget", str(options.budget)]
            arguments += ["--shared"] * options.shared
            try:
                found = hosts.run(str(program), on_hosts * per_host, per_host, rate if on_hosts > 1 else "none",
                                  arguments, options.timeout)
            except hosts.NotPossible as reason:
                print(f"not run: {reason}", file=sys.stderr)
                return hosts.NOT_POSSIBLE
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                print(f"{label}: {error}", file=sys.stderr)
                return 1
            report.append({"hosts": on_hosts, "per_host": per_host, "rate": rate, **found})
            for index, row in enumerate(found["rows"]):
                row["overtaken_by"] = overtaken_by(found["rows"], index, options.limit)
            if options.json:
                continue
            links = "; ".join(f"{where} {found[where + '_us']:.1f} us, {found[where + '_crowd_us']:.1f} us "
                              f"of all at once, {found[where + '_GBps']:.3f} GB/s"
                              for where in ("inside", "across") if found[where + "_us"])
            print(f"{label}: {links}")
            for row in found["rows"]:
                mark = "" if verdict(row, options.limit) else "  !"
                mark += f"  slower than {row['overtaken_by']}" if row["overtaken_by"] else ""
                times = "  ".join(f"{name} {time:.1f}" for name, time in
                                  sorted(row["times_us"].items(), key=lambda item: item[1]))
                print(f"  {row['size']:>9}  {row['chosen']:>18}  {row['ratio']:5.2f} "
                      f"{row['ratio_forced']:5.2f}{mark}   {times}", flush=True)
    rows = [row for world in report for row in world["rows"]]
    slow = sum(not verdict(row, options.limit) for row in rows)
    overtaken = sum(row["overtaken_by"] > 0 for row in rows)
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        print(f"{slow} of {len(rows)} choices are slower than {options.limit} x the fastest, "
              f"{overtaken} than a larger all-reduce")
    return 1 if slow or overtaken else 0
