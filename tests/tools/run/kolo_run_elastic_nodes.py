"""Tests of kolo_run_elastic_test: elastic jobs with one kolo-run on each node. Each node has a host's name of its
own (KOLO_HOST_ID), so that ranks of two nodes share no memory."""
import os
import pathlib
import signal
import socket
import tempfile
import unittest

from elastic_jobs import Job, command_of
from launching import PROGRAMS, clean, free_port

HERE = socket.gethostname()


class Nodes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="kolo_nodes_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.stop = self.folder / "stop"
        self.port = free_port(2)

    def start(self, node, *options, among=None, program=None, nodes=2, each=2):
        variables = {"KOLO_FLIGHT_RECORDER": str(self.folder), "KOLO_HOST_ID": f"node{node}", "KOLO_SECRET": "s"}
        command = [PROGRAMS["kolo_run"], "--bind", "none", "--nnodes", str(nodes), "--nproc-per-node", str(each),
                   "--node-rank", str(node), "--master-addr", "127.0.0.1", "--master-port", str(self.port), *options,
                   *(program or command_of(PROGRAMS["worker"], self.stop))]
        job = Job(command, among=among, env=clean(variables))
        self.addCleanup(job.close)
        return job

    def start_both(self, *options, **program):
        node_0 = self.start(0, *options, **program)
        return node_0, self.start(1, *options, among=node_0, **program)

    def finish(self, *jobs):
        self.stop.touch()
        for job in jobs:
            job.end(self)
        self.assertEqual([path.name for path in self.folder.glob("kolo-flight*")], [], jobs[0].text)

    def test_a_lost_rank_is_replaced_on_its_node(self):
        jobs = self.start_both("--min-np", "3", "--restarts", "1")
        first, members = jobs[0].await_world(*[HERE] * 4)
        os.kill(members[3][0], signal.SIGKILL)
        jobs[0].expect(r"process 3 on node 1 \(pid %d\) ended with signal 9 \(Killed\); the other 3 go on, and it is "
                       r"replaced \(0 more restarts\)" % members[3][0])
        jobs[0].expect(r"starting process 4 on node 1")
        second, members = jobs[0].await_world(*[HERE] * 4, after=first)
        self.assertEqual(sorted(members), [0, 1, 2, 4])
        self.assertEqual(self.parent_of(members[4][0]), jobs[1].process.pid)
        os.kill(members[0][0], signal.SIGKILL)
        _, members = jobs[0].await_world(*[HERE] * 3, after=second)
        self.assertEqual(sorted(members), [1, 2, 4])
        self.finish(*jobs)

    @staticmethod
    def parent_of(pid):
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[1])

    def test_a_node_is_lost_and_comes_back(self):
        node_0, node_1 = self.start_both("--min-np", "1")
        first, _ = node_0.await_world(*[HERE] * 4)
        node_1.process.kill()
        node_0.expect(r"node 1 is gone: its kolo-run has ended, .*; lost processes: 2, 3")
        second, members = node_0.await_world(HERE, HERE, after=first)
        self.assertEqual(sorted(members), [0, 1])
        node_1 = self.start(1, "--min-np", "1", among=node_0)
        _, members = node_0.await_world(*[HERE] * 4, after=second)
        self.assertEqual(sorted(members), [0, 1, 4, 5])
        self.finish(node_0, node_1)

    def test_too_few_ranks_wait_for_a_node(self):
        node_0, node_1 = self.start_both("--min-np", "3", "--elastic-timeout", "60")
        first, _ = node_0.await_world(*[HERE] * 4)
        node_1.process.kill()
        node_0.expect(r"2 of at least 3 \(--min-np\) processes are there; waiting for more, up to 60 s")
        node_1 = self.start(1, "--min-np", "3", "--elastic-timeout", "60", among=node_0)
        node_0.await_world(*[HERE] * 4, after=first)
        self.finish(node_0, node_1)

    def test_a_node_without_ranks_stays(self):
        jobs = self.start_both("--min-np", "1", each=1)
        first, members = jobs[0].await_world(HERE, HERE)
        os.kill(members[0][0], signal.SIGKILL)
        _, members = jobs[0].await_world(HERE, after=first)
        self.assertEqual(sorted(members), [1])
        self.finish(*jobs)

    def test_node_0_is_lost(self):
        node_0, node_1 = self.start_both("--min-np", "1")
        node_0.await_world(*[HERE] * 4)
        node_0.process.kill()
        node_1.end(self, 1)
        self.assertIn("node 0's kolo-run has ended, or has not answered for 30 s; ending the job", node_1.text)

    def test_the_loss_of_all_that_train_ends_all_nodes(self):
        node_0, node_1 = self.start_both("--min-np", "1", each=1)
        first, members = node_0.await_world(HERE, HERE)
        os.kill(members[0][0], signal.SIGKILL)
        _, members = node_0.await_world(HERE, after=first)
        os.kill(members[1][0], signal.SIGKILL)
        for job in (node_0, node_1):
            job.end(self, 137)
        self.assertIn("the last that had the training's state", node_0.text)
        self.assertIn("node 0 ends the job", node_0.text)

    def test_a_signal_to_a_node_ends_its_ranks(self):
        node_0, node_1 = self.start_both("--min-np", "1")
        first, _ = node_0.await_world(*[HERE] * 4)
        node_1.process.terminate()
        node_1.end(self, 143)
        node_0.await_world(HERE, HERE, after=first)
        self.finish(node_0)

    def test_a_signal_to_node_0_ends_all(self):
        jobs = self.start_both("--min-np", "1")
        jobs[0].await_world(*[HERE] * 4)
        jobs[0].process.terminate()
        for job in jobs:
            job.end(self, 143)

    def test_a_program_that_is_missing_on_a_node(self):
        node_0 = self.start(0, "--min-np", "2")
        node_1 = self.start(1, "--min-np", "2", among=node_0, program=["./absent"])
        node_1.end(self, 2)
        node_0.expect(r"node 1 is gone")
        _, members = node_0.await_world(HERE, HERE)
        self.assertEqual(sorted(members), [0, 1])
        self.finish(node_0)

    def test_nodes_that_do_not_fit(self):
        node_0 = self.start(0, "--min-np", "1")
        node_1 = self.start(1, "--min-np", "1", among=node_0, each=3)
        node_1.end(self, 2)
        self.assertIn("node 1 has 3 ranks, and node 0 is one of 2 nodes with 2 each", node_0.text)
        node_1 = self.start(1, "--min-np", "1", among=node_0)
        node_0.await_world(*[HERE] * 4)
        again = self.start(1, "--min-np", "1", among=node_0)
        again.end(self, 2)
        self.assertIn("a kolo-run of node 1 is there already", node_0.text)
        self.finish(node_0, node_1)

    def test_what_is_refused(self):
        for option in (["--max-np", "8"], ["--host-discovery", "./hosts.sh"]):
            job = self.start(0, "--min-np", "1", *option)
            job.end(self, 2)
            self.assertIn("are for one kolo-run that starts all ranks", job.text)
        job = self.start(0, "--min-np", "5")
        job.end(self, 2)
        self.assertIn("--min-np 5 is more than the 4 ranks of the job", job.text)
