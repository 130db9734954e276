"""What the drivers of random programs have in common that start ranks as processes: jobs whose ranks
may fail, and what they have said."""
import os
import select
import shutil
import subprocess
import time

from launching import clean, free_port, torch_variables

HEARTBEAT = 3  # seconds
# Of jobs in which a rank fails.
FAULT_VARIABLES = {"KOLO_HEARTBEAT_TIMEOUT": str(HEARTBEAT), "KOLO_OPERATION_TIMEOUT": "12", "KOLO_LOG_LEVEL": "off"}


def ended(process):
    try:
        process.wait(timeout=5)
        return True
    except subprocess.TimeoutExpired:
        return False


class Job:
    """Ranks of one program, started by hand, so that nobody ends them but this. `variables` are all
    ranks'; of `knobs`, `hosts` is how many there seem to be."""

    def __init__(self, command, size, knobs, variables, text):
        knobs = dict(knobs)
        hosts = min(int(knobs.pop("hosts", "1")), size)
        self.text = f"{text}, {size} ranks, {hosts} hosts, {knobs}"
        # Hosts by turns, so that their ranks do not lie together.
        self.ranks = [subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT,
                                       env=clean(own | knobs | {"KOLO_HOST_ID": f"host{rank % hosts}"}))
                      for rank, own in enumerate(torch_variables(size, free_port(2), **variables))]
        self.lines = [""] * size

    def read(self, is_done, end):
        """Reads until is_done(rank) of all; what is missing at the end: those ranks."""
        open_ranks = {process.stdout.fileno(): rank for rank, process in enumerate(self.ranks)}
        while True:
            missing = [rank for rank in range(len(self.ranks)) if not is_done(rank)]
            left = end - time.monotonic()
            if not missing or left <= 0:
                return missing
            if not open_ranks:
                return missing
            for file in select.select(list(open_ranks), [], [], left)[0]:
                data = os.read(file, 65536)
                self.lines[open_ranks[file]] += data.decode(errors="replace")
                if not data:
                    del open_ranks[file]

    def stacks(self):
        if shutil.which("gdb") is None:
            return ""
        return "\n".join(f"--- rank {rank}\n" + subprocess.run(
            ["gdb", "-p", str(process.pid), "-batch", "-ex", "thread apply all bt 12"], text=True, capture_output=True,
            check=False, timeout=120).stdout for rank, process in enumerate(self.ranks) if process.poll() is None)

    def close(self):
        for process in self.ranks:
            process.kill()
        for process in self.ranks:
            process.communicate()

    def report(self, what, with_stacks=False):
        said = "".join(f"--- rank {rank} said ({self.ranks[rank].poll()}):\n{text}" for rank, text in enumerate(self.lines))
        return f"{self.text}: {what}\n{said}{self.stacks() if with_stacks else ''}"
