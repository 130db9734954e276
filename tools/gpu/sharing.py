"""Ranks that share a GPU and map each other's memory on it; used by tools/gpu_check. Where they do not
map it, everything passes through the host's memory with the right results: so that is looked at."""
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile

from gpu.outcome import Failed, NotRun

LARGEST = "64M"  # of each collective
ONE_PROGRAM = 45  # seconds that a random program may take where all share a GPU


def on_one(context):
    return {"CUDA_VISIBLE_DEVICES": context.machine.gpus[0]["uuid"]}


def expect_mapped(context, count, masked=()):
    """Once for each number of ranks: the first one's kolo-info must say that they do. `masked`: what each
    rank runs it by, which sets a mask; then each time."""
    if count in context.mapped and not masked:
        return
    line = device_memory(context, count, masked)
    if "is mapped by all" not in line:
        raise Failed(f"{count} ranks on one GPU do not map each other: {line}")
    if not masked:
        context.mapped.add(count)


def device_memory(context, count, masked=()):
    """What the first rank's kolo-info says of how the ranks reach it."""
    text = context.ranks(count, [*masked, context.program("kolo-info")], {} if masked else on_one(context))
    lines = [line for line in text.splitlines() if line.startswith("device memory")]
    return lines[0] if lines else "kolo-info has no line 'device memory'"


def measured(context, count, name, arguments):
    """What kolo-perf reports, of right results alone."""
    expect_mapped(context, count)
    report = context.logs / f"{name}.json"
    report.unlink(missing_ok=True)
    context.ranks(count, [context.program("kolo-perf"), *arguments, "--device", "cuda", "-J",
                          str(report)], on_one(context))
    found = json.loads(report.read_text())
    for row in found.get("rows", []):
        for result in row["results"]:
            if result["wrong"] != 0:  # None: nobody has looked
                raise Failed(f"{row.get('collective')}, {count} ranks: {result['wrong']} wrong "
                             f"elements of {row['size']} B")
    return found


def allreduce(count, name="allreduce"):
    """Every byte is read and written by each rank once at least."""

    def check(context):
        found = measured(context, count, f"{name}_{count}",
                         ["allreduce", "-b", "64M", "-e", "256M", "-f", "4", "-n", "10"])
        best = max(row["size"] / (result["time_us"] * 1e-6)
                   for row in found["rows"] for result in row["results"])
        text = f"{best / 1e9:.0f} GB/s"
        if context.copy_rate:
            text += f", {best / (context.copy_rate / (2 * count)):.2f} of copy rate / {2 * count}"
        return text

    return check


def collectives(context):
    """Each path of device memory, small and large: what is sent at once, in slots, in pieces."""
    measured(context, 2, "collectives_2",
             ["all", "-b", "4", "-e", LARGEST, "-f", "256", "-n", "2", "-w", "1"])
    measured(context, 4, "collectives_4", ["all", "-d", "all", "-o", "all", "-b", "4K", "-e",
                                           "256K", "-f", "64", "-n", "1", "-w", "0"])
    return f"every collective, 4 B to {LARGEST}; every type and operation, 4K and 256K"


def programs(context):
    """As tests/bindings/core/stress has them: 2 to 6 ranks, hosts of their own, sets, groups, joins."""
    expect_mapped(context, 2)
    script = context.root / "tests" / "bindings" / "core" / "stress" / "stress_test"
    text = context.call([sys.executable, str(script), "--probe", context.program("stress_probe"), "--gpu",
                         "--count", "8", "--limit", str(ONE_PROGRAM), "--seconds",
                         str(max(context.seconds_left() - ONE_PROGRAM, 0))])
    return text.strip().splitlines()[-1]


def step(context, name="step"):
    """What a training step of ResNet-50 sends."""
    found = measured(context, 2, name, ["--step", "-n", "20"])["step"]
    if found["wrong"]:
        raise Failed(f"{found['wrong']} wrong elements")
    return (f"{found['tensors']} gradients in {found['step']['time_us'] / 1e3:.2f} ms, in one piece "
            f"in {found['raw']['time_us'] / 1e3:.2f} ms")


@contextlib.contextmanager
def served(context):
    """With a daemon of NVIDIA MPS of its own: the kernels of all ranks run at once, where they take turns
    otherwise."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        raise NotRun("nvidia-cuda-mps-control is not installed")
    before, mapped = context.build.environment, context.mapped
    # Its log may still grow when the folder goes.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        context.build.environment = {**before, "CUDA_MPS_PIPE_DIRECTORY": folder,
                                     "CUDA_MPS_LOG_DIRECTORY": folder}
        context.mapped = set()
        try:
            context.call([control, "-d"])
            yield
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run([control], input="quit\n", text=True, env=context.build.environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30,
                               check=False)
            context.build.environment, context.mapped = before, mapped


def under_mps(context):
    with served(context):
        line = device_memory(context, 2)
        if "by turns" in line:
            raise Failed(f"NVIDIA MPS serves nobody: {line}")
        notes = [f"{count} ranks {allreduce(count, 'mps_allreduce')(context)}" for count in (2, 4)]
        return "; ".join([*notes, step(context, "mps_step")])
