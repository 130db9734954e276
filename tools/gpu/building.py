"""The build of tools/gpu_check: for the GPUs of this machine alone, without tests of the host."""
import os
import pathlib
import shutil
import signal
import subprocess
import time

from gpu import bundle

PROGRAMS = ["kolo-perf", "kolo-info", "kolo-run", "device_check", "nccl_check", "stress_probe"]
WITH_TORCH = ["tensor_check", "mnist", "rectified_flow"]
FOR_CHECKS = 240  # seconds that LibTorch's programs, which take longest to compile, leave


class Build:
    """Where the programs are, and what they need in their environment."""

    def __init__(self, folder, environment):
        self.folder = pathlib.Path(folder).resolve()
        self.environment = environment

    def program(self, name):
        """The path of a program; None if this build has none of that name. A whole build has some of
        them a second time, with an emulated GPU: those say nothing of this machine's."""
        for path in sorted(self.folder.rglob(name)):
            emulated = "emulated" in path.relative_to(self.folder).parts
            if not emulated and path.is_file() and os.access(path, os.X_OK):
                return path
        return None


def prepare(root, machine, arguments, deadline):
    """(Build, note, whether it is whole); the build is None if nothing can be run."""
    environment = dict(os.environ)
    if arguments.build:
        if not (arguments.build / "CMakeCache.txt").exists():
            return None, f"{arguments.build} is no build folder", False
        unpacked = arguments.build.resolve() / "root"
        if (unpacked / "unpacked").exists():
            bundle.use_libraries(unpacked, environment)
        return Build(arguments.build, environment), f"programs of {arguments.build}", True
    folder = root / "build" / "gpu"
    folder.mkdir(parents=True, exist_ok=True)
    options = [f"-DKOLO_WITH_{part}=OFF" for part in ("MPI", "PMIX", "GLOO")]
    if arguments.bundle_from:
        if not arguments.bundle_from.is_dir():
            return None, f"{arguments.bundle_from} is no folder that --bundle has made", False
        options += bundle.unpack(arguments.bundle_from, folder / "root", environment)
    options += ["-DKOLO_WITH_CUDA=ON", "-DCMAKE_BUILD_TYPE=Release",
                # Other compilers than those of kolo's own tests warn of other things.
                "-DKOLO_WARNINGS_AS_ERRORS=OFF"]
    if machine.architectures():
        options.append(f"-DKOLO_CUDA_ARCHITECTURES={';'.join(machine.architectures())}")
    options.append(f"-DKOLO_WITH_TORCH={'OFF' if arguments.no_torch else 'AUTO'}")
    if arguments.torch:
        options.append(f"-DKOLO_TORCH_ROOT={arguments.torch}")
    if shutil.which("nvcc") is None and pathlib.Path("/usr/local/cuda/bin/nvcc").exists():
        options.append("-DCMAKE_CUDA_COMPILER=/usr/local/cuda/bin/nvcc")
    log = folder / "build.log"
    with open(log, "w") as out:
        failure = call(["cmake", "-G", "Ninja", "-S", str(root), "-B", str(folder), *options], out,
                       environment, deadline)
        if failure:
            return None, f"cmake {failure} ({log}: {last_error(log)})", False
        targets = known_targets(folder, environment)
        core, torch = ([name for name in names if name in targets]
                       for names in (PROGRAMS, WITH_TORCH))
        ninja = ["ninja", "-C", str(folder), "-k", "0"]
        if arguments.jobs:
            ninja += ["-j", str(arguments.jobs)]
        failure = call([*ninja, *core], out, environment, deadline)
        if failure:
            return None, f"ninja {failure} ({log}: {last_error(log)})", False
        kind = ", ".join(f"sm_{name}" for name in machine.architectures()) or "kolo's architectures"
        build = Build(folder, environment)
        if torch:
            failure = call([*ninja, *torch], out, environment, deadline - FOR_CHECKS)
        if failure:
            return build, (f"{len(core)} programs for {kind}, but not those with LibTorch: ninja "
                           f"{failure} ({log}: {last_error(log)})"), False
    return build, f"{len(core + torch)} programs for {kind}", True


def call(command, out, environment, deadline):
    """Why the command failed, or nothing."""
    out.write(f"$ {' '.join(command)}\n")
    out.flush()
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=subprocess.STDOUT, env=environment,
                                   start_new_session=True)
    except FileNotFoundError:
        return "is not installed"
    try:
        status = process.wait(max(deadline - time.monotonic(), 1))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its compilers too: what is measured next is alone
        process.wait()
        return "found no more time"
    return f"ended with {status}" if status else ""


def known_targets(folder, environment):
    done = subprocess.run(["ninja", "-C", str(folder), "-t", "targets", "all"], check=True,
                          capture_output=True, text=True, env=environment)
    return {line.split(":")[0] for line in done.stdout.splitlines()}


def last_error(log):
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()
             if "error" in line.lower() and not line.startswith("$")]
    return lines[0][:200] if lines else "see there"
