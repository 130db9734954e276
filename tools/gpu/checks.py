"""The checks of tools/gpu_check, in the order in which they run. Each is bounded in time, and says in
a line what it saw; what they write is in gpu_check/ of the build folder."""
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import traceback

from gpu import failing, sharing, training
from gpu.outcome import Failed, NoTime, NotRun


@dataclasses.dataclass
class Check:
    name: str
    about: str
    limit: int  # seconds
    run: object  # (context) -> what it saw; raises Failed or NotRun


class Context:
    """What the checks share: the build, the machine, the time that is left, and their logs."""

    def __init__(self, root, build, machine, data, deadline):
        self.root = root
        self.build = build
        self.machine = machine
        self.data = data
        self.deadline = deadline
        self.logs = build.folder / "gpu_check"
        self.logs.mkdir(exist_ok=True)
        self.until = deadline
        self.cut = False  # whether the check that runs lacked time that all together have
        self.copy_rate = None  # bytes read and written a second, by device_check
        self.mapped = set()  # numbers of ranks that were seen to map each other's device memory

    def run(self, check):
        started = time.monotonic()
        self.name = check.name
        self.until = min(self.deadline, started + check.limit)
        verdict = "ok"
        self.cut = False
        try:
            if not self.machine.gpus:
                raise NotRun("no GPU")
            if self.deadline - started < 5:
                raise NoTime("no time is left")
            note = check.run(self)
        except NotRun as reason:
            verdict, note = "not run", str(reason)
            self.cut = isinstance(reason, NoTime)
        except Failed as reason:
            verdict, note = "FAILED", str(reason)
        except Exception as mistake:  # a report of another form than expected: the others go on
            verdict, note = "FAILED", f"its result cannot be read: {mistake!r}"
            with open(self.logs / f"{self.name}.log", "a") as out:
                traceback.print_exc(file=out)
        row = {"check": check.name, "verdict": verdict,
               "seconds": round(time.monotonic() - started, 1), "note": note, "no_time": self.cut}
        print(f"{check.name}: {verdict}: {note}", flush=True)
        return row

    def seconds_left(self):
        return max(self.until - time.monotonic(), 1)

    def program(self, name):
        path = self.build.program(name)
        if path is None:
            raise NotRun(f"this build has no {name}")
        return str(path)

    def call(self, command, environment=None):
        """The command's output. Failed if it ends badly or not at all, NotRun if it says so (77)."""
        log = self.logs / f"{self.name}.log"
        with open(log, "a") as out:
            out.write(f"$ {' '.join(map(str, command))}\n")
        # Files: ranks that outlive their launcher would keep pipes open.
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output,
                                           stderr=errors, start_new_session=True,
                                           env={**self.build.environment, **(environment or {})})
            except FileNotFoundError as missing:
                raise NotRun(f"{command[0]} is not installed") from missing
            seconds = self.seconds_left()
            status = end_within(process, seconds)
            texts = []
            for file in (output, errors):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        with open(log, "a") as out:
            out.write("".join(texts))
        lines = [line for line in "".join(texts).splitlines() if line.strip()]
        causes = [line for line in lines if not line.startswith("kolo-run:")]
        last = (causes or lines or [""])[-1]
        if status is None:
            self.cut = self.until == self.deadline  # it may want no more than the others had
            raise Failed(f"not done after {seconds:.0f} s: {last} ({log})")
        if status == 77:
            raise NotRun(last or "the program says so")
        if status != 0:
            raise Failed(f"exit status {status}: {last} ({log})")
        return texts[0]

    def written(self):
        """What the check's programs have written so far."""
        return (self.logs / f"{self.name}.log").read_text(errors="replace")

    def ranks(self, count, command, environment=None):
        return self.call([self.program("kolo-run"), "-np", str(count), *command], environment)


def end_within(process, seconds):
    """Its exit status; None if it had to be ended, with all that it started: a launcher is asked first,
    since its ranks may be in groups of their own."""
    for patience, number in ((seconds, signal.SIGTERM), (10, signal.SIGKILL), (10, signal.SIGKILL)):
        try:
            status = process.wait(timeout=patience)
            return status if number == signal.SIGTERM else None
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, number)
    return None


# UCX with CUDA patches the driver's functions that allocate, to know whose memory is whose. kolo says
# so with each transfer, and works without.
WITHOUT_HOOKS = {"UCX_MEMTYPE_CACHE": "n", "UCX_MEM_CUDA_HOOK_MODE": "none"}


def info(context):
    """The lines of kolo-info about devices, of one rank and of two."""
    def ask():
        text = context.call([context.program("kolo-info")])
        context.ranks(2, [context.program("kolo-info")])
        return text

    try:
        text = ask()
    except Failed as reason:
        before = context.build.environment
        context.build.environment = before | WITHOUT_HOOKS
        try:
            ask()
        except Failed:
            context.build.environment = before
            raise reason from None
        variables = " ".join(f"{name}={value}" for name, value in WITHOUT_HOOKS.items())
        raise Failed(f"{reason}; it works with {variables}, as the other checks now do") from reason
    lines = [line.strip() for line in text.splitlines() if re.search(r"GPU|CUDA|NVIDIA", line)]
    return "; ".join(lines[:4]) or "kolo-info names no device"


def device(context):
    report = context.logs / "device.json"
    text = context.call([context.program("device_check"), "--json", str(report)])
    found = json.loads(report.read_text())
    context.copy_rate = found.get("copy_bytes_per_second")
    shares = [f"{name} {share:.2f}" for name, share in found.get("shares", {}).items()]
    note = "shares of the copy rate: " + ", ".join(shares) if shares else "all as on the host"
    return "; ".join([note, *(line for line in text.splitlines() if line.startswith("not run"))])


def nccl(context):
    lines = context.call([context.program("nccl_check")]).strip().splitlines()
    return lines[-1] if lines else "ended well"


def sanitizer(tool):
    def check(context):
        found = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        # Errors of calls are device_check's to judge: it provokes some.
        try:
            text = context.call([found, "--tool", tool, "--error-exitcode", "9",
                                 "--report-api-errors", "no", "--target-processes",
                                 "application-only", context.program("device_check"), "--quick"])
        except Failed as reason:
            if "Device not supported" in context.written():
                raise NotRun("compute-sanitizer does not support this device here") from reason
            raise
        summary = [line.strip("= ") for line in text.splitlines() if "SUMMARY" in line]
        if not summary:
            raise Failed(f"{tool} says nothing of what it saw ({context.logs / context.name}.log)")
        return summary[-1]

    return check


def tensors(context):
    if len(context.machine.gpus) == 1:
        sharing.expect_mapped(context, 2)
    lines = context.ranks(2, [context.program("tensor_check")]).strip().splitlines()
    return lines[-1] if lines else "ended well"


def small_sum(context, count, environment, on_one_gpu=False):
    """An all-reduce whose result is checked; each rank sets its own mask."""
    masked = ["bash", "-c", f'export {environment}; exec "$0" "$@"']
    if on_one_gpu:  # else the GPUs may not reach each other
        sharing.expect_mapped(context, count, masked)
    context.ranks(count, [*masked, context.program("kolo-perf"), "allreduce", "--device", "cuda",
                          "-b", "4K", "-e", "4M", "-f", "32", "-n", "5"])


def masks(context):
    gpus = context.machine.gpus
    done = []
    one = gpus[0]["uuid"]
    small_sum(context, 2, f"CUDA_VISIBLE_DEVICES={one}", on_one_gpu=True)
    done.append("one UUID for both ranks")
    if len(gpus) > 1:
        both = f"{gpus[0]['uuid']},{gpus[1]['uuid']}"
        small_sum(context, 2, "CUDA_VISIBLE_DEVICES=$LOCAL_RANK")
        small_sum(context, 2, "CUDA_VISIBLE_DEVICES=$((1 - LOCAL_RANK)),$LOCAL_RANK")
        small_sum(context, 2, f"CUDA_VISIBLE_DEVICES={both}")
        done += ["$LOCAL_RANK", "another order on each rank", "two UUIDs"]
    else:
        # Both ranks' device 0 is the same GPU under different masks.
        small_sum(context, 2, f"CUDA_VISIBLE_DEVICES=$([ $LOCAL_RANK = 0 ] && echo 0 || echo {one})",
                  on_one_gpu=True)
        done += ["0 and its UUID", "$LOCAL_RANK not run: one GPU"]
    return "; ".join(done)


CHECKS = [
    Check("info", "what kolo-info says of the devices", 60, info),
    Check("device", "every operation and type against the host; rates", 150, device),
    Check("memcheck", "compute-sanitizer memcheck over device_check", 120, sanitizer("memcheck")),
    Check("racecheck", "compute-sanitizer racecheck over device_check", 120,
          sanitizer("racecheck")),
    Check("tensors", "the LibTorch binding on CUDA tensors, streams included", 90, tensors),
    Check("allreduce_2", "2 ranks on one GPU, as a share of the copy rate", 60,
          sharing.allreduce(2)),
    Check("allreduce_4", "4 ranks on one GPU, as a share of the copy rate", 60,
          sharing.allreduce(4)),
    Check("collectives", "2 and 4 ranks on one GPU: every collective, type and operation", 120,
          sharing.collectives),
    Check("programs", "random programs of all calls, 2 to 6 ranks, most memory on the GPUs", 120,
          sharing.programs),
    Check("step", "2 ranks on one GPU: the gradients of a step", 60, sharing.step),
    Check("mps", "2 and 4 ranks on one GPU with NVIDIA MPS, where kernels of all run at once", 90,
          sharing.under_mps),
    Check("mnist", "MNIST on cuda: 2 ranks as one rank", 90, training.mnist),
    Check("rectified_flow", "rectified flow on cuda: 2 ranks as one rank", 90,
          training.rectified_flow),
    Check("masks", "CUDA_VISIBLE_DEVICES by rank, in other orders, by UUID", 60, masks),
    Check("killed", "a rank is killed while its memory is mapped", 90, failing.killed),
    Check("nccl", "kolo beside ncclAllReduce", 90, nccl),
]
