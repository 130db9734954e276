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

TORCH = "torch DDP, gloo"
IN_STEP = "independent, in step"
PYTHON_PROGRAM = pathlib.Path(__file__).resolve().parent / "digits_ddp.py"
GLOO = "import torch.distributed as d; assert d.is_gloo_available()"  # without which it cannot train


def run_all(commands, environments, timeout):
    """Standard output of each of the processes, which run side by side, each on a core of its own
    where there are enough."""
    cores = sorted(os.sched_getaffinity(0))
    started, outputs = [], []
    try:
        for rank, (command, environment) in enumerate(zip(commands, environments)):
            core = cores[rank] if len(cores) >= len(commands) else None
            pin = (lambda c=core: os.sched_setaffinity(0, {c})) if core is not None else None
            started.append(subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
                                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, text=True, preexec_fn=pin))
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
    """What each of the processes that report has to say of each epoch but the first."""
    with tempfile.TemporaryDirectory() as folder:
        reports = [pathlib.Path(folder) / f"{i}.json" for i in range(options.np)]
        commands = [[str(options.program.resolve()), "--data", str(options.data.resolve()), "--threads",
                     "1", "--progress", "lines", "--epochs", str(options.epochs), "--json", str(report)]
                    for report in reports]
        run_all(commands, environments, options.timeout)
        return [json.loads(report.read_text())["epochs"][1:] for report in reports if report.exists()]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def meeting(options):
    """The environments of ranks that meet at a port that was free a moment before."""
    port = str(free_port())
    return [{"RANK": str(rank), "WORLD_SIZE": str(options.np), "LOCAL_RANK": str(rank),
             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} for rank in range(options.np)]


def kolo(options):
    """As the others below: images/s of each epoch but the first, by what they are called."""
    return {"kolo": [epoch["images_per_second"] for epoch in example(options, meeting(options))[0]]}


def independent(options):
    """And what the same steps would give if each waited for the slower process and nothing else."""
    runs = list(zip(*example(options, [{"KOLO_INIT_METHOD": "single://"}] * options.np)))
    apart = [sum(epoch["images_per_second"] for epoch in epochs) for epochs in runs]
    images = [sum(epoch["images_per_second"] * sum(epoch["step_seconds"]) for epoch in epochs)
              for epochs in runs]
    longest = [sum(map(max, zip(*(epoch["step_seconds"] for epoch in epochs)))) for epochs in runs]
    return {"independent": apart, IN_STEP: [i / seconds for i, seconds in zip(images, longest)]}


def torch_ddp(options):
    command = [options.python, str(PYTHON_PROGRAM), "--data", str(options.data.resolve()), "--epochs",
               str(options.epochs)]
    return {TORCH: json.loads(run_all([command] * options.np, meeting(options), options.timeout)[0])[1:]}


def why_not(python, statement):
    """Why this Python does not import this, or nothing."""
    try:
        tried = subprocess.run([python, "-W", "ignore", "-c", statement], capture_output=True, text=True)
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
    ways = [kolo, independent, torch_ddp]
    if reason := why_not(options.python, GLOO):
        print(f"torch DDP is not measured: {options.python}: {reason}", file=sys.stderr)
        ways.remove(torch_ddp)
    rounds = []
    for number in range(options.rounds):
        rates = {}
        turn = number % len(ways)
        for way in ways[turn:] + ways[:turn]:
            try:
                rates |= {name: statistics.median(epochs) for name, epochs in way(options).items()}
            except (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                print(f"{way.__name__}: {error}\n{getattr(error, 'stderr', '') or ''}", file=sys.stderr)
                return 1
        rounds.append(rates)
        print(f"round {number + 1}/{options.rounds}: " +
              ", ".join(f"{name} {rate:.0f} images/s" for name, rate in sorted(rates.items())),
              file=sys.stderr, flush=True)
    ratios = {name: [rates["kolo"] / rates[name] for rates in rounds]
              for name in sorted(rounds[0]) if name != "kolo"}
    if options.json:
        print(json.dumps({"ranks": options.np, "rounds": rounds, "kolo_to": ratios}, indent=1))
    else:
        for name, values in ratios.items():
            print(f"kolo / {name}: {spread(values)}")
    return 0
