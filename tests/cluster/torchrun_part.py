"""The torchrun of PyTorch's wheel, whose agent listens at MASTER_PORT itself: one node, and two."""
import subprocess
import unittest

from hosts import NotPossible
from ways import LIMIT, check, cluster, environment, program

TORCHRUN = []


def prepare(cluster_of_test):
    path = program("torchrun")
    try:
        done = cluster_of_test.hosts[0].run(path, "--help")
    except OSError as error:
        raise NotPossible(f"torchrun: {error}") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise NotPossible(f"{path} does not start: {lines[-1] if lines else done.returncode}")
    TORCHRUN.extend([path, "--no-python", "--nproc-per-node", "2"])


def start(host, *arguments):
    return cluster().hosts[host].start(*TORCHRUN, *arguments, program("probe"), env=environment(), text=True,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Torchrun(unittest.TestCase):
    def expect(self, layout, processes):
        ended = [process.communicate(timeout=LIMIT) for process in processes]
        check(self, layout, "".join(out for out, _ in ended), "".join(error for _, error in ended),
              [process.returncode for process in processes])

    def test_one_node(self):
        self.expect([0, 0], [start(0, "--standalone")])

    def test_two_nodes(self):
        common = ["--nnodes", "2", "--master-addr", "kolohost0", "--master-port", "29500"]
        self.expect([0, 0, 1, 1], [start(node, *common, "--node-rank", str(node)) for node in (0, 1)])
