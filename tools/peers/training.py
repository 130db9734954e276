"""The digits example on two or more ranks of this host beside as many independent processes and
PyTorch's DistributedDataParallel, in turn, for tools/bench training."""
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile

PYTHON_PROGRAM = pathlib.Path(__file__).resolve().parent / "digits_ddp.py"


def run_all(commands, environments, timeout):
    """Standard output of each of the processes, which run side by side, each on a core of its own
    where there are enough."""
    cores = sorted(os.sched_getaffinity(0))
    started = []
    for rank, (command, environment) in enumerate(zip(commands, environments)):
        core = cores[rank] if len(cores) >= len(commands) else None
        pin = (lambda c=core: os.sched_setaffinity(0, {c})) if core is not None else None
        started.append(subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, preexec_fn=pin))
    outputs = []
    try:
        for process in started:
            output, complaint = process.communicate(timeout=timeout)
            if process.returncode != 0:
                raise subprocess.CalledProcessError(process.returncode, process.args, output, complaint)
            outputs.append(output)
    finally:
        for process in started:
            process.kill()
    return outputs


def example(options, environments):
    """Images/s of each epoch but the first, of each of the processes."""
    with tempfile.TemporaryDirectory() as folder:
        reports = [pathlib.Path(folder) / f"{i}.json" for i in range(options.np)]
        commands = [[str(options.program.resolve()), "--data", str(options.data.resolve()), "--threads",
                     "1", "--progress", "lines", "--epochs", str(options.epochs), "--json", str(report)]
                    for report in reports]
        run_all(commands, environments, options.timeout)
        return [[epoch["images_per_second"] for epoch in json.loads(report.read_text())["epochs"][1:]]
                for report in reports if report.exists()]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def meeting(options):
    """The environments of ranks that meet at a port that was free a moment before."""
    port = str(free_port())
    return [{"RANK": str(rank), "WORLD_SIZE": str(options.np), "LOCAL_RANK": str(rank),
             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} for rank in range(options.np)]


def kolo(options):
    return example(options, meeting(options))[0]


def independent(options):
    rates = example(options, [{"KOLO_INIT_METHOD": "single://"}] * options.np)
    return [sum(epoch) for epoch in zip(*rates)]


def torch_ddp(options):
    command = [options.python, str(PYTHON_PROGRAM), "--data", str(options.data.resolve()), "--epochs",
               str(options.epochs)]
    return json.loads(run_all([command] * options.np, meeting(options), options.timeout)[0])[1:]


def why_no_torch(python):
    """Why this Python cannot train, or nothing."""
    try:
        tried = subprocess.run([python, "-c", "import torch.distributed as d; assert d.is_gloo_available()"],
                               capture_output=True, text=True)
    except OSError as error:
        return str(error)
    lines = tried.stderr.strip().splitlines()
    return (lines[-1] if lines else f"exit status {tried.returncode}") if tried.returncode else None


def spread(values):
    """'0.98 (0.93-1.01)': the median and the 10th and 90th percentile."""
    ordered = sorted(values)
    at = [ordered[round(share * (len(ordered) - 1))] for share in (0.1, 0.9)]
    return f"{statistics.median(ordered):.3f} ({at[0]:.3f}-{at[1]:.3f})"


def measure(options):
    """What tools/bench training prints; its exit status."""
    ways = {"kolo": kolo, "independent": independent, "torch DDP, gloo": torch_ddp}
    if reason := why_no_torch(options.python):
        print(f"torch DDP is not measured: {options.python}: {reason}", file=sys.stderr)
        del ways["torch DDP, gloo"]
    rounds = []
    for number in range(options.rounds):
        rates = {}
        order = list(ways)
        for name in order[number % len(order):] + order[:number % len(order)]:
            try:
                rates[name] = statistics.median(ways[name](options))
            except (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                print(f"{name}: {error}\n{getattr(error, 'stderr', '') or ''}", file=sys.stderr)
                return 1
        rounds.append(rates)
        print(f"round {number + 1}/{options.rounds}: " +
              ", ".join(f"{name} {rates[name]:.0f} images/s" for name in ways), file=sys.stderr, flush=True)
    ratios = {name: [rates["kolo"] / rates[name] for rates in rounds] for name in ways if name != "kolo"}
    if options.json:
        print(json.dumps({"ranks": options.np, "rounds": rounds, "kolo_to": ratios}, indent=1))
    else:
        for name, values in ratios.items():
            print(f"kolo / {name}: {spread(values)}")
    return 0
