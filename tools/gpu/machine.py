"""What this machine has: GPUs, driver, compilers. Used by tools/gpu_check; starts nothing on a GPU."""
import contextlib
import dataclasses
import datetime
import os
import pathlib
import shutil
import subprocess

FIELDS = "index,uuid,name,compute_cap,driver_version,memory.total"


@dataclasses.dataclass
class Machine:
    gpus: list
    reason: str  # why there are none
    compiler: str

    def line(self):
        if not self.gpus:
            return f"no GPU: {self.reason}; {self.compiler}"
        names = sorted({gpu["name"] for gpu in self.gpus})
        return (f"{len(self.gpus)} GPU(s): {', '.join(names)}, driver "
                f"{self.gpus[0]['driver_version']}; {self.compiler}")

    def facts(self):
        return {"date": datetime.date.today().isoformat(), "gpus": self.gpus,
                "no_gpu": self.reason, "compiler": self.compiler}

    def architectures(self):
        """As CMake takes them; empty without a GPU: kolo's own."""
        return sorted({gpu["compute_cap"].replace(".", "") for gpu in self.gpus})


def look():
    gpus, reason = find_gpus()
    return Machine(gpus, reason, compiler())


@contextlib.contextmanager
def kept_awake():
    """Without persistence mode the driver takes a GPU down when the last program has left it, and
    every check would wait for its start."""
    files = []
    for path in sorted(pathlib.Path("/dev").glob("nvidia[0-9]*")):
        with contextlib.suppress(OSError):
            files.append(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    try:
        yield
    finally:
        for file in files:
            os.close(file)


def find_gpus():
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return [], "there is no nvidia-smi"
    try:
        done = subprocess.run([tool, f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return [], "nvidia-smi does not answer"
    if done.returncode != 0:
        text = (done.stdout + done.stderr).strip().splitlines()
        return [], f"nvidia-smi: {text[0] if text else done.returncode}"
    gpus = []
    for line in done.stdout.splitlines():
        gpus.append(dict(zip(FIELDS.split(","), (field.strip() for field in line.split(",")))))
    return gpus, "" if gpus else "nvidia-smi lists none"


def compiler():
    tool = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if tool is None:
        return "no nvcc"
    done = subprocess.run([tool, "--version"], capture_output=True, text=True, timeout=60,
                          check=False)
    releases = [line for line in done.stdout.splitlines() if "release" in line]
    return releases[0].strip() if releases else tool
