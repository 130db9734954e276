"""The torchrun of PyTorch's wheel, whose agent listens at MASTER_PORT itself: one node and two, a port
beside the agent's that is taken, and a group that is started anew."""
import subprocess
import unittest

import wheel
from ways import LIMIT, check, cluster, environment, folder, program

TORCHRUN = []


def prepare(_):
    TORCHRUN.extend([wheel.torchrun_of(program("python"), folder() / "torchrun"), "--no-python"])


def start(host, *arguments, command=None):
    return cluster().hosts[host].start(
        *TORCHRUN, *arguments, *(command or [program("probe")]), env=environment(), text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Torchrun(unittest.TestCase):
    def expect(self, layout, processes):
        ended = [process.communicate(timeout=LIMIT) for process in processes]
        check(self, layout, "".join(out for out, _ in ended), "".join(error for _, error in ended),
              [process.returncode for process in processes])
        for _, errors in ended:
            self.assertNotIn("does not answer as expected", errors)

    def test_one_node(self):
        for size in (1, 2, 4):
            self.expect([0] * size, [start(0, "--standalone", "--nproc-per-node", str(size))])

    def test_two_nodes(self):
        for backend in ("static", "c10d"):
            meeting = (["--master-addr", "kolohost0", "--master-port", "29500"] if backend == "static" else
                       ["--rdzv-backend", "c10d", "--rdzv-endpoint", "kolohost0:29500", "--rdzv-id", "job"])
            common = ["--nnodes", "2", "--nproc-per-node", "2", *meeting]
            with self.subTest(backend):
                nodes = [start(node, *common, *(["--node-rank", str(node)] if backend == "static" else []))
                         for node in (0, 1)]
                if backend == "static":
                    self.expect([0, 0, 1, 1], nodes)
                    continue
                ended = [node.communicate(timeout=LIMIT) for node in nodes]  # they number themselves
                self.assertEqual([node.returncode for node in nodes], [0, 0], ended)
                lines = "".join(out for out, _ in ended).splitlines()
                self.assertEqual(sorted(line.split()[0] for line in lines), [f"rank={r}" for r in range(4)], ended)

    def test_the_next_port_is_taken(self):
        taken = cluster().hosts[0].start("python3", "-c", """
import socket, sys
held = socket.create_server(("0.0.0.0", 29501))
print("ready", flush=True)
sys.stdin.read()""", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.assertEqual(taken.stdout.readline(), "ready\n")
            self.expect([0, 0], [start(0, "--master-port", "29500", "--nproc-per-node", "2")])
        finally:
            taken.communicate()

    def test_a_group_that_starts_anew_meets_anew(self):
        script = f"""if [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then
  {program('probe')} > /dev/null; [ "$RANK" = 0 ] || exit 7; exec sleep 600
fi
exec {program('probe')}"""
        self.expect([0, 0], [start(0, "--standalone", "--nproc-per-node", "2", "--max-restarts", "1",
                                   "--monitor-interval", "0.1", command=["sh", "-c", script])])
