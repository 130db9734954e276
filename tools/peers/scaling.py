"""One training on 1, 2, 4 … hosts at a constant global batch, for tools/bench scaling: the digits
example, one rank a host, on hosts made of network namespaces."""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

from peers import picture
from peers.hosts import NOT_POSSIBLE, PORT, Hosts, NotPossible

# Rounding in another order grows with each step of AdamW.
COMPARED = 50
COLUMNS = ("hosts", "batch per rank", "epoch seconds", "speed-up", "efficiency", "node-seconds",
           "communication", "of it exposed")


def train(options, number, folder):
    """(report, losses, summary of rank 0's timeline) of a training on so many hosts."""
    report, losses = folder / f"report{number}.json", folder / f"losses{number}.jsonl"
    timeline = folder / f"timeline{number}.%r.json"
    command = [str(options.program.resolve()), "--data", str(options.data.resolve()), "--no-dropout",
               "--threads", "1", "--progress", "lines", "--global-batch", str(options.global_batch),
               "--epochs", str(options.epochs), "--max-steps", str(options.max_steps),
               "--log-losses", str(losses), "--json", str(report)]
    with Hosts(number, options.rate) as hosts:
        started = []
        try:
            for rank, name in enumerate(hosts.names):
                # The hosts are new each time: links that are kept by their names are of no use to anybody.
                environment = {**os.environ, "KOLO_INIT_METHOD": f"tcp://10.213.0.1:{PORT}",
                               "KOLO_RANK": str(rank), "KOLO_SIZE": str(number), "KOLO_HOST_ID": name,
                               "KOLO_TIMELINE": str(timeline), "UCX_TLS": "tcp,self",
                               "KOLO_LINK_CACHE": "0", "OMP_NUM_THREADS": "1"}
                started.append(subprocess.Popen(["ip", "netns", "exec", name, *command], env=environment,
                                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
            codes = [process.wait(options.timeout) for process in started]
        finally:
            for process in started:
                process.kill()
    if any(codes):
        raise subprocess.CalledProcessError(next(code for code in codes if code), command)
    tool = pathlib.Path(__file__).resolve().parents[1] / "timeline"
    summary = subprocess.run([str(tool), "summary", "--json", str(timeline).replace("%r", "0")],
                             capture_output=True, text=True, check=True)
    curve = [json.loads(line)["loss"] for line in losses.read_text().splitlines()]
    return json.loads(report.read_text()), curve, json.loads(summary.stdout)[0]


def row_of(number, options, report, summary, one):
    """`one`: mean seconds of an epoch on one host, or None if this is it."""
    # --max-steps may have cut the last epoch short.
    images = max(epoch["steps"] for epoch in report["epochs"]) * report["global_batch"]
    seconds = [images / epoch["images_per_second"] for epoch in report["epochs"]]
    mean = sum(seconds) / len(seconds)
    deviation = math.sqrt(sum((s - mean) ** 2 for s in seconds) / max(len(seconds) - 1, 1))
    speed_up = (one or mean) / mean
    communication = summary.get("communication", {})
    whole = 1000 * sum(epoch["steps"] * report["global_batch"] / epoch["images_per_second"]
                       for epoch in report["epochs"])
    return {"hosts": number, "batch_per_rank": options.global_batch / number, "epoch_s": mean,
            "deviation_s": deviation, "speed_up": speed_up, "efficiency": speed_up / number,
            "node_seconds": number * mean,
            "communication_share": communication.get("total_ms", 0) / whole if number > 1 else 0,
            "exposed_share": communication.get("exposed_ms", 0) / whole if number > 1 else 0}


def text_of(row):
    return (f"{row['hosts']}", f"{row['batch_per_rank']:g}", f"{row['epoch_s']:.2f} ± {row['deviation_s']:.2f}",
            f"{row['speed_up']:.2f}", f"{100 * row['efficiency']:.0f} %", f"{row['node_seconds']:.1f}",
            f"{100 * row['communication_share']:.0f} %", f"{100 * row['exposed_share']:.0f} %")


def measure(options):
    """What tools/bench scaling prints; its exit status."""
    rows, losses = [], {}
    with tempfile.TemporaryDirectory() as name:
        for number in options.hosts:
            try:
                report, losses[number], summary = train(options, number, pathlib.Path(name))
            except NotPossible as reason:
                print(f"skipped: {reason}", file=sys.stderr)
                return NOT_POSSIBLE
            except (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                print(f"{number} hosts: {error}", file=sys.stderr)
                return 1
            rows.append(row_of(number, options, report, summary, rows[0]["epoch_s"] if rows else None))
            if not options.json:
                if len(rows) == 1:
                    print("".join(f"{title:>16}" for title in COLUMNS))
                print("".join(f"{text:>16}" for text in text_of(rows[-1])), flush=True)
    if options.json:
        print(json.dumps(rows, indent=1))
    if options.out:
        options.out.write_bytes(picture.curves(losses))
    first = losses[options.hosts[0]]
    worst = max(abs(a - b) / b for curve in losses.values() for a, b in zip(curve[:COMPARED], first))
    print(f"the first {COMPARED} losses differ by at most {worst:.1e} from those of {options.hosts[0]} host"
          f"{'s' if options.hosts[0] != 1 else ''}", file=sys.stderr)
    return 0 if worst < options.tolerance else 1
