"""dist.all_reduce of kolo from Python beside gloo's, mpi4py's, commux' and a no-op, for tools/bench python."""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

from .training import free_port, spread, why_not

RANK_PROGRAM = pathlib.Path(__file__).resolve().parent / "python_ranks.py"
# What each wants to import; torch has the last one.
OTHERS = {"mpi4py": "import numpy, mpi4py.MPI", "commux": "import torch; from commux import register",
          "no-op": "import torch.testing._internal.distributed.fake_pg"}
MPIRUN = ("mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "btl_base_warn_component_unused", "0")
SKIPPED = 77  # exit status where the Python has no torch or no kolo
UNITS = ((1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def commands(options, libraries):
    """(command, environment) of each process to start: mpirun, or the ranks."""
    sizes, size = [], options.minbytes
    while size <= options.maxbytes:
        sizes.append(str(size // 4 * 4))
        size *= options.stepfactor
    rank = [options.python, "-W", "ignore", str(RANK_PROGRAM), "--sizes", ",".join(sizes), "--repetitions",
            str(options.iters), "--libraries", ",".join(libraries)]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    if "mpi4py" in libraries:
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return [([*MPIRUN, *root, "-np", str(options.np), *rank], meeting)]
    return [(rank, meeting | {"RANK": str(number), "WORLD_SIZE": str(options.np), "LOCAL_RANK": str(number)})
            for number in range(options.np)]


def run(started, timeout):
    """Standard output of the first of the processes."""
    processes = [subprocess.Popen(command, env=os.environ | environment, stdin=subprocess.DEVNULL, text=True,
                                  stdout=subprocess.PIPE) for command, environment in started]
    try:
        outputs = [process.communicate(timeout=timeout)[0] for process in processes]
    finally:
        for process in processes:
            process.terminate()
    for process in processes:
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)
    return outputs[0]


def size_text(size):
    unit, name = next(pair for pair in UNITS if size >= pair[0])
    return f"{size // unit} {name}"


def print_table(rows):
    """The medians, and the ratios repetition by repetition."""
    names = list(rows[0]["seconds"])
    peers = [name for name in names if name != "kolo"]
    print("size      " + "".join(f"{name + ' us':>13}" for name in names)
          + "".join(f"{'kolo / ' + name:>24}" for name in peers))
    for entry in rows:
        seconds = entry["seconds"]
        print(f"{size_text(entry['bytes']):10}"
              + "".join(f"{statistics.median(seconds[name]) * 1e6:13.1f}" for name in names)
              + "".join(f"{spread([a / b for a, b in zip(seconds['kolo'], seconds[name])]):>24}" for name in peers))


def measure(options):
    """What tools/bench python prints; its exit status."""
    if reason := why_not(options.python, "import torch.distributed, kolo.c10d"):
        print(f"{options.python} is not measured: {reason}", file=sys.stderr)
        return SKIPPED
    reasons = {name: why_not(options.python, statement) for name, statement in OTHERS.items()}
    if not reasons["mpi4py"] and not shutil.which("mpirun"):
        reasons["mpi4py"] = "no mpirun"
    for name, reason in reasons.items():
        if reason:
            print(f"{name} is not measured: {reason}", file=sys.stderr)
    load = os.getloadavg()[0]
    try:
        rows = json.loads(run(commands(options, [name for name, reason in reasons.items() if not reason]),
                              options.timeout))
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"tools/bench python: {error}", file=sys.stderr)
        return 1
    loads = [load, os.getloadavg()[0]]
    if options.json:
        print(json.dumps({"ranks": options.np, "load": loads, "not_measured": reasons, "rows": rows}, indent=1))
    else:
        print_table(rows)
        print(f"{options.np} ranks on {len(os.sched_getaffinity(0))} cores; load average {loads[0]:.1f} before, "
              f"{loads[1]:.1f} after")
    return 0
