"""Jobs of Python ranks, for the tests of this folder: options, started processes, what they say."""
import argparse
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 90  # seconds for a job
SKIPPED = 77

# UCX's shared memory goes here, apart from that of tests that run beside: what stays is left by a job of this test.
SHARED_MEMORY = tempfile.TemporaryDirectory(dir="/dev/shm", prefix="kolo_test_")
os.environ["UCX_POSIX_DIR"] = SHARED_MEMORY.name

# A shell that starts the tests with "&" ignores it, and so would all ranks.
signal.signal(signal.SIGINT, signal.default_int_handler)


def options(description, *names):
    """The command line of a test: --python, and --NAME for each name; the rest is unittest's."""
    parser = argparse.ArgumentParser(description=description)
    for name in ("python", *names):
        parser.add_argument(f"--{name}", required=True)
    found, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    if not os.access(found.python, os.X_OK):
        print(f"skipped: no {found.python}: tests/bindings/python/prepare says why")
        sys.exit(SKIPPED)
    return found


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as held:
        return held.getsockname()[1]


def left_memory():
    """Files of shared memory that jobs of this test have left."""
    return os.listdir(SHARED_MEMORY.name)


class Job:
    """One or several processes, whose output is kept; all of them end with it."""

    def __init__(self, commands, environment=None, each=None):
        """`each`: what a process's environment has besides, by its number."""
        self.processes = [subprocess.Popen(
            [str(word) for word in command], env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"} | (environment or {})
            | (each(number) if each else {}), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True, stdin=subprocess.DEVNULL) for number, command in enumerate(commands)]

    def end(self, limit=LIMIT):
        """(exit statuses, outputs); a job that does not end in time is killed, and fails."""
        outputs = []
        for process in self.processes:
            try:
                outputs.append(process.communicate(timeout=limit)[0])
            except subprocess.TimeoutExpired:
                rest = "\n".join(self.where_they_are(self.processes[len(outputs):]))
                raise AssertionError(f"not ended after {limit} s: {process.args}\n{rest}") from None
        return [process.returncode for process in self.processes], outputs

    def where_they_are(self, processes):
        """What each has said, with the lines of Python at which it is ended now."""
        self.kill(signal.SIGABRT)
        for process in processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                pass
        self.kill()
        return [process.communicate()[0] for process in processes]

    def kill(self, by=signal.SIGKILL):
        for process in self.processes:
            try:
                os.killpg(process.pid, by)
            except ProcessLookupError:
                pass


def by_hand(command, size, port=None, **more):
    """A job of processes with RANK and WORLD_SIZE, and an address of their own."""
    port = str(port or free_port())
    return Job([command] * size, each=lambda rank: {
        "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port}, **more)
