"""A rank that dies while the other has mapped its memory; used by tools/gpu_check."""
import os
import signal
import subprocess
import tempfile
import time

from gpu import sharing
from gpu.outcome import Failed, NoTime

NOTICED = 30  # seconds within which the survivor must have ended
BUSY = 4  # seconds of the processor that a rank has used when it is at work


def killed(context):
    if context.seconds_left() < NOTICED + 10:
        raise NoTime("no time is left")
    program = context.program("kolo-perf")
    sharing.expect_mapped(context, 2)
    work = ["allreduce", "--device", "cuda", "-b", "16M", "-e", "16M", "-n", "1000000"]
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(2):
            environment = {**context.build.environment, "KOLO_RANK": str(rank), "KOLO_SIZE": "2",
                           "KOLO_INIT_METHOD": f"file://{folder}/meet",
                           **sharing.on_one(context)}
            log = open(context.logs / f"killed_{rank}.log", "w")
            ranks.append(subprocess.Popen([program, *work], env=environment, stdout=log,
                                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL))
        try:
            wait_until_busy(ranks, context)
            ranks[1].send_signal(signal.SIGKILL)
            started = time.monotonic()
            status = wait_for(ranks[0], NOTICED)
            took = time.monotonic() - started
        finally:
            for process in ranks:
                if process.poll() is None:
                    process.kill()
                process.wait()
    text = (context.logs / "killed_0.log").read_text()
    last = text.strip().splitlines()[-1] if text.strip() else "nothing"
    if status is None:
        raise Failed(f"the survivor was still there after {NOTICED} s; it said: {last}")
    if status in (0, -signal.SIGSEGV, -signal.SIGABRT) or "rank 1" not in text:
        raise Failed(f"the survivor ended with {status} and does not name rank 1: {last}")
    # The GPU must be of use again.
    context.ranks(2, [program, "allreduce", "--device", "cuda", "-b", "1M", "-e", "1M", "-n", "5"],
                  sharing.on_one(context))
    return f"the survivor ended after {took:.1f} s: {last[:120]}"


def wait_until_busy(ranks, context):
    """Until both have a context on the GPU and some processor time of repetitions behind them."""
    deadline = time.monotonic() + min(30, context.seconds_left())
    while time.monotonic() < deadline:
        for rank, process in enumerate(ranks):
            if process.poll() is not None:
                raise Failed(f"rank {rank} ended by itself with {process.returncode}")
        if all(uses_gpu(process.pid) and processor_seconds(process.pid) > BUSY for process in ranks):
            return
        time.sleep(0.2)
    raise Failed("the ranks did not get to work on the GPU")


def uses_gpu(pid):
    try:
        files = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return False
    return any(name.startswith("/dev/nvidia") for name in files)


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for(process, seconds):
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
