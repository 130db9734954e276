"""What the launching tests have in common: how real processes are started, and what they must say."""
import argparse
import os
import random
import socket
import subprocess
import sys
import time
import unittest

PROGRAMS = {}
LIMIT = 120  # seconds for any one job


def lines_of(size, hosts=1):
    """What the probe prints on `size` ranks, spread evenly over hosts in blocks."""
    per = size // hosts
    return sorted(f"rank={r} size={size} local={r % per}/{per} cross={r // per}/{hosts} "
                  f"sum={size * (size + 1) // 2} host={socket.gethostname()}" for r in range(size))


def clean(variables):
    """This environment without what another launcher left in it."""
    prefixes = ("KOLO_", "OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "PBS_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return kept | {"OMP_NUM_THREADS": "1"} | variables


def kolo_run(*arguments, **variables):
    return subprocess.run([PROGRAMS["kolo_run"], *arguments], capture_output=True, text=True,
                          check=False, timeout=LIMIT, env=clean(variables), stdin=subprocess.DEVNULL)


def free_port(count=1):
    """The first of so many that are free, below those that the system gives to anybody who asks."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        first = int(file.read().split()[0])
    while True:
        port = random.randrange(10000, first - count)
        try:
            for offset in range(count):
                with socket.socket() as listener:
                    listener.bind(("127.0.0.1", port + offset))
            return port
        except OSError:
            pass


def with_more_time(test):
    """The test with a short deadline of the bootstrap; if that was too short for what must happen
    before it on a busy machine, with a long one."""
    def attempt(self):
        try:
            test(self, "3")
        except AssertionError:
            test(self, "40")
    return attempt


def by_hand(variables_of_ranks, arguments=lambda rank: [], program=()):
    """Processes without a launcher, perhaps as an argument of `program`; (exit code, output, errors) of each."""
    started = [subprocess.Popen([*program, PROGRAMS["probe"], *arguments(rank)], env=clean(variables), text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
               for rank, variables in enumerate(variables_of_ranks)]
    ended = [(process.communicate(timeout=LIMIT), process.returncode) for process in started]
    return [(code, out, err) for (out, err), code in ended]


def torch_variables(size, port, **more):
    return [{"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": str(port)} | more for rank in range(size)]


def main(description):
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kolo-run", required=True)
    parser.add_argument("--probe", required=True)
    arguments, rest = parser.parse_known_args()
    PROGRAMS.update({name: os.path.abspath(path) for name, path in vars(arguments).items()})
    began = time.monotonic()
    ended = unittest.main(argv=[sys.argv[0], *rest], exit=False)
    print(f"{time.monotonic() - began:.1f} s")
    sys.exit(not ended.result.wasSuccessful())
