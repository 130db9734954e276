"""Tests of kolo_run_test: one kolo-run on each node."""
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from launching import LIMIT, PROGRAMS, clean, free_port, kolo_run, lines_of


class Node(unittest.TestCase):
    """torchrun's manner, one kolo-run on each node."""

    def test_one_node(self):
        for arguments in (["--nproc_per_node", "2"], ["--nproc-per-node=2", "--standalone", "--use_env"]):
            for left_over in ({}, {"MASTER_ADDR": "192.0.2.7"}):
                done = kolo_run(*arguments, PROGRAMS["probe"], **left_over)
                self.assertEqual((done.returncode, sorted(done.stdout.splitlines())), (0, lines_of(2)), done)

    def test_its_options_come_before_the_variables(self):
        done = kolo_run("--nproc_per_node", "1", "--master_addr", "127.0.0.1", "sh", "-c", "echo $MASTER_ADDR",
                        MASTER_ADDR="nowhere")
        self.assertEqual(done.stdout, "127.0.0.1\n", done)

    def test_two_nodes(self):
        port = str(free_port(2))
        command = [PROGRAMS["kolo_run"], "--nproc_per_node", "2", "--nnodes", "2", "--master_addr", "127.0.0.1",
                   "--master_port", port]
        started = [subprocess.Popen([*command, "--node_rank", str(node), PROGRAMS["probe"]], text=True,
                                    env=clean({"KOLO_HOST_ID": f"node{node}", "KOLO_SECRET": "s"}),
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE) for node in (1, 0)]
        ended = [process.communicate(timeout=LIMIT) for process in started]
        self.assertEqual([process.returncode for process in started], [0, 0], ended)
        self.assertEqual(sorted("".join(out for out, _ in ended).splitlines()), lines_of(4, hosts=2))
        self.assertEqual([errors for _, errors in ended], ["", ""])
        done = subprocess.run([*command, "--node_rank", "1", "true"], check=True, capture_output=True, text=True,
                              timeout=LIMIT, env=clean({}))
        self.assertRegex(done.stderr, f"kolo-run: 2 nodes meet without a secret.* 127.0.0.1:{port} may join; .*"
                                      "KOLO_SECRET, or a --secret-file\n$")

    def start_two_nodes(self, program, program_1, *options, waits_for=""):
        """Node 0, which serves already, and has written `waits_for` to standard error, and node 1."""
        self.port = port = free_port(2)
        command = [PROGRAMS["kolo_run"], "--nproc_per_node", "2", "--nnodes", "2", "--master_addr", "127.0.0.1",
                   "--master_port", str(port), *options, "--node_rank"]
        jobs = []
        for node, words in (("0", program), ("1", program_1)):
            variables = {"KOLO_HOST_ID": f"node{node}", "KOLO_SECRET": "s", "KOLO_INIT_TIMEOUT": "60"}
            jobs.append(subprocess.Popen([*command, node, *words], text=True, env=clean(variables),
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE))
            self.addCleanup(jobs[-1].communicate)
            self.addCleanup(jobs[-1].kill)
            end = time.monotonic() + LIMIT
            while node == "0" and not self.is_served(port):
                self.assertLess(time.monotonic(), end)
                time.sleep(0.01)
            while node == "0" and waits_for and waits_for not in jobs[-1].stderr.readline():
                self.assertIsNone(jobs[-1].poll())
        return jobs

    def visitors(self):
        """How many are connected to node 0."""
        established = "01"
        with open("/proc/net/tcp", encoding="ascii") as file:
            fields = [line.split() for line in file.read().splitlines()[1:]]
        own = f"0100007F:{self.port:04X}"
        return sum(local == own and state == established for _, local, _, state, *_ in fields)

    def is_served(self, port):
        with socket.socket() as visitor:
            return visitor.connect_ex(("127.0.0.1", port)) == 0

    def test_a_node_whose_ranks_do_not_come(self):
        fails = ["sh", "-c", "test $RANK != 3 || exit 5; exec sleep 600"]
        for program, rank, code in ((fails, 3, 5), (["./absent"], 2, 2), (["--output-dir", "/dev/null/x", "true"], 2, 2),
                                    (["--gpu-ids", "0,0", "true"], 2, 2)):
            node_0, node_1 = self.start_two_nodes([PROGRAMS["probe"]], program)
            self.assertEqual(node_1.wait(LIMIT), code)
            _, errors = node_0.communicate(timeout=20)  # KOLO_INIT_TIMEOUT is 60
            self.assertEqual(node_0.returncode, 3, errors)
            self.assertRegex(errors, rf"rank {rank} \(started by kolo-run on .*: exit status {code}\) ended while the "
                                     "ranks were meeting")

    def test_node_0_that_fails_before_the_others_have_come(self):
        fails = ["sh", "-c", "test $RANK != 0 || exit 5; exec sleep 600"]
        for program, code in ((fails, 5), (["./absent"], 2), (["--gpu-ids", "0,0", "true"], 2)):
            node_0, node_1 = self.start_two_nodes(program, [PROGRAMS["probe"]], waits_for="waiting for the ranks of other")
            _, errors = node_1.communicate(timeout=20)  # KOLO_INIT_TIMEOUT is 60
            self.assertEqual((node_0.wait(10), node_1.returncode), (code, 3), errors)
            self.assertRegex(errors, rf"rank 0 \(started by kolo-run on .*: exit status {code}\) ended while the "
                                     "ranks were meeting")

    def test_node_0_that_fails_waits_for_the_others_until_a_signal(self):
        node_0, node_1 = self.start_two_nodes(["./absent"], ["sleep", "600"], waits_for="waiting for the ranks of other")
        self.assertIsNone(node_1.poll())
        node_0.send_signal(signal.SIGTERM)
        self.assertEqual(node_0.wait(10), 2)

    def test_a_rank_that_does_not_come_while_others_wait(self):
        probe = PROGRAMS["probe"]
        for status, code, words in ((5, 5, r"rank 3 \(started by kolo-run on .*: exit status 5\) ended while the ranks were"),
                                    (0, 3, "rank 3 ended with exit status 0 and did not come to meet the others")):
            with tempfile.TemporaryDirectory() as folder:
                script = f'test $RANK != 3 || {{ while [ ! -e {folder}/go ]; do sleep 0.1; done; exit {status}; }}; exec "$0"'
                node_0, node_1 = self.start_two_nodes([probe], ["sh", "-c", script, probe])
                end = time.monotonic() + LIMIT
                while self.visitors() < 3:
                    self.assertLess(time.monotonic(), end)
                    time.sleep(0.05)
                pathlib.Path(folder, "go").touch()
                self.assertEqual(node_1.wait(20), code)  # KOLO_INIT_TIMEOUT is 60
                _, errors = node_0.communicate(timeout=20)
                self.assertEqual(node_0.returncode, 3, errors)
                self.assertRegex(errors, words)
                self.assertNotIn("rank 2", errors)

    def test_a_node_that_fails_after_the_meeting(self):
        with tempfile.TemporaryDirectory() as folder:
            stays = [PROGRAMS["probe"], "--until", f"{folder}/go"]
            node_0, node_1 = self.start_two_nodes(stays, ["sh", "-c", '"$0" && exit 5', PROGRAMS["probe"]])
            self.assertEqual(node_1.wait(LIMIT), 5)
            self.assertIsNone(node_0.poll())
            pathlib.Path(folder, "go").touch()
            out, errors = node_0.communicate(timeout=LIMIT)
            self.assertEqual((node_0.returncode, errors), (0, ""))
            self.assertEqual(sorted(out.splitlines()), lines_of(4, hosts=2)[:2])

    def test_node_0_that_fails_after_the_meeting_waits_for_nobody(self):
        with tempfile.TemporaryDirectory() as folder:
            stays = [PROGRAMS["probe"], "--until", f"{folder}/go"]
            node_0, node_1 = self.start_two_nodes(["sh", "-c", '"$0" && exit 5', PROGRAMS["probe"]], stays)
            _, errors = node_0.communicate(timeout=LIMIT)
            self.assertEqual(node_0.returncode, 5)
            self.assertNotIn("waiting", errors)
            self.assertIsNone(node_1.poll())
            pathlib.Path(folder, "go").touch()
            out, errors = node_1.communicate(timeout=LIMIT)
            self.assertEqual((node_1.returncode, errors), (0, ""))
            self.assertEqual(sorted(out.splitlines()), lines_of(4, hosts=2)[2:])

    def test_an_elastic_job_of_a_program_that_is_not(self):
        with tempfile.TemporaryDirectory() as folder:
            stays = [PROGRAMS["probe"], "--until", f"{folder}/go"]
            jobs = self.start_two_nodes(stays, stays, "--min-np", "1", "--restarts", "1")
            lines = [job.stdout.readline() for job in jobs for _ in range(2)]
            self.assertEqual(sorted(line.strip() for line in lines), lines_of(4, hosts=2))
            children = pathlib.Path(f"/proc/{jobs[1].pid}/task/{jobs[1].pid}/children").read_text(encoding="ascii")
            os.kill(int(children.split()[0]), signal.SIGKILL)
            for job, words in ((jobs[0], r"process [23] on node 1 .* ended with signal 9 \(Killed\), and the program has "
                                         r"not called kolo::elastic::run\(\); ending the job"),
                               (jobs[1], "node 0 ends the job")):
                _, errors = job.communicate(timeout=LIMIT)
                self.assertEqual(job.returncode, 137, errors)
                self.assertRegex(errors, words)

    def test_a_port_that_is_none(self):
        nodes = ["--nproc-per-node", "1", "--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1"]
        for port in ("99999", "29501x", "65535", "0", "-1"):
            done = kolo_run(*nodes, "true", MASTER_PORT=port)
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(f"MASTER_PORT={port} is no port", done.stderr)
        done = kolo_run(*nodes, "sh", "-c", "echo $MASTER_PORT", MASTER_PORT="65534")
        self.assertEqual(done.stdout, "65535\n", done)
        done = kolo_run(*nodes, "--master-port", "29501", "sh", "-c", "echo $MASTER_PORT", MASTER_PORT="x")
        self.assertEqual(done.stdout, "29502\n", done)

    def test_what_cannot_be(self):
        for arguments, words in ((["-np", "2", "--nproc-per-node", "2"], "neither -np nor hosts"),
                                 (["--nproc-per-node", "2", "--nnodes", "2", "--launcher", "mpirun"],
                                  "give -np alone with --launcher mpirun"),
                                 (["--nnodes", "2", "--nproc-per-node", "2"], "give --master-addr"),
                                 (["-np", "2", "--master-addr", "a"], "is said by --address"),
                                 (["-np", "2", "--launcher", "mpirun", "--master-port", "29517"], "it does not"),
                                 (["--nnodes", "2", "--node-rank", "2"], "--node-rank 2 is none of"),
                                 (["--nproc-per-node", "many"], "expected a number, cpu, gpu or auto"),
                                 (["--launcher", "local", "-H", "a:2"], "a is another one"),
                                 (["-H", "a:2", "--interface", "nosuch0"], "no such network"),
                                 (["-H", "a:2,[fd00::2:2"], "'[fd00::2:2' is no host: expected name or name:slots"),
                                 (["-H", "[a]:2"], "'[a]:2' is no host"),
                                 (["-H", "[fd00::2]2"], "'[fd00::2]2' is no host"),
                                 (["-H", "fe80::2%:2"], "'fe80::2%:2' is no host"),
                                 (["--launcher", "mpirun", "-H", "[fd00::2]:2"], "takes no IPv6 address, as fd00::2"),
                                 (["-H", "a:2:2"], "'a:2:2' is no host"),
                                 (["-np", "1", "--gpu-ids", "1,1"], "--gpu-ids 1,1: expected different devices"),
                                 (["-np", "1", "--gpu-ids", "0,x"], "--gpu-ids 0,x: expected different devices"),
                                 (["-np", "1", "--secret-file", "/nosuch"], "cannot read the secret in /nosuch"),
                                 (["--as-rank", "1", "1", "core"], "is another version of kolo installed on")):
            done = kolo_run(*arguments, "true")
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(words, done.stderr)
