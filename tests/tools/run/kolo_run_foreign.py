"""Tests of kolo_run_waits_test: srun and mpirun in kolo-run's place, by programs that have their names."""
import os
import pathlib
import pty
import signal
import tempfile
import time
import unittest

from kolo_run_ends import SOON, start
from kolo_run_pauses import read_until, state_of
from launching import PROGRAMS, clean, kolo_run

# Of a launcher that nothing else ends; not for ever, should nobody be left that knows of it. It has no
# $(seq 300), which Ctrl-C would end and so leave nothing to count.
WORKS = "i=0; while [ $i -lt 300 ]; do i=$((i + 1)); sleep .1; done"


class Foreign(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = f"{self.folder}:{os.environ['PATH']}"

    def launcher(self, name, script):
        program = pathlib.Path(self.folder, name)
        program.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
        program.chmod(0o755)
        return ["-np", "1", "--launcher", name]

    def start(self, script, *options, **settings):
        job = start(*self.launcher("mpirun", script), *options, "p", env=clean({"PATH": self.path}), **settings)
        self.addCleanup(job.communicate)
        self.addCleanup(job.kill)
        return job

    def test_what_they_get(self):
        for name in ("srun", "mpirun"):  # one that only shows what it was given, and takes its time
            how = self.launcher(name, 'echo "$@"\nexec sleep $WORK')
            logs = f"{self.folder}/100%/{name}"
            done = kolo_run(*how, "--output-dir", logs, "p", PATH=self.path, WORK="0")
            self.assertEqual(done.returncode, 0, done)
            self.assertTrue(os.path.isdir(logs), done)
            expected = f"--output-filename {logs} "
            if name == "srun":
                expected = f"--output={self.folder}/100%%/srun/rank.%t.out "
            self.assertIn(expected, done.stdout)
            done = kolo_run(*how, "--timeout", "1", "p", PATH=self.path, WORK="20")
            self.assertEqual(done.returncode, 124, done)

    def test_an_elastic_job(self):
        for name, words in (("srun", "--kill-on-bad-exit=0 --no-kill "), ("mpirun", "--enable-recovery ")):
            how = self.launcher(name, 'echo "$@"; echo "$KOLO_INIT_METHOD"; exit 3')
            done = kolo_run(*how, "--min-np", "1", "p", PATH=self.path)
            self.assertEqual(done.returncode, 3, done)
            self.assertIn(words, done.stdout)
            self.assertRegex(done.stdout, r"\nelastic://127\.0\.0\.1:\d+\n")

    def test_where_srun_has_rank_0(self):
        how = self.launcher("srun", 'echo "$MASTER_ADDR"')[2:]
        left = {"PATH": self.path, "MASTER_ADDR": "left", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "1,1"}
        for hosts, address in ((["-H", "n2:1,n1:1"], "n2"), (["-H", "n2:2"], ""), ([], "left"),
                               (["-H", "n2:1,n1:1", "-x", "MASTER_ADDR"], "left"),
                               (["-H", "n2:1,n1:1", "-x", "MASTER_ADDR=own"], "own")):
            done = kolo_run(*hosts, *how, "p", **left)
            self.assertEqual((done.returncode, done.stdout), (0, f"{address}\n"), done)
        del left["MASTER_ADDR"]
        self.assertEqual(kolo_run(*how, "p", **left).stdout, "n1\n")

    def test_where_srun_writes(self):
        how = [*self.launcher("srun", "exit 0")[2:], "--output-dir", f"{self.folder}/logs", "p"]
        for hosts, told in (("localhost:2", False), ("localhost,n2", True), ("n2", True)):
            done = kolo_run("-H", hosts, *how, PATH=self.path)
            self.assertEqual(done.returncode, 0, done)
            self.assertEqual("take a folder that all see" in done.stderr, told, done)

    def test_its_own_end_within_the_limit(self):
        for end, code in (("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)):
            done = kolo_run(*self.launcher("srun", end), "--timeout", "60", "p", PATH=self.path)
            self.assertEqual((done.returncode, done.stderr), (code, ""), done)
        done = kolo_run("-np", "1", "--launcher", "srun", "--timeout", "60", "p", PATH=f"{self.folder}/none")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("cannot run 'srun'", done.stderr)

    def test_user_signals_reach_it(self):
        job = self.start('trap "echo usr1" USR1; trap "echo usr2; exit 0" USR2; echo ready; ' + WORKS,
                         "--timeout", "60")
        for sent, line in ((None, "ready\n"), (signal.SIGUSR1, "usr1\n"), (signal.SIGUSR2, "usr2\n")):
            if sent:
                job.send_signal(sent)
            self.assertEqual(job.stdout.readline(), line)
        self.assertEqual(job.wait(SOON), 0)

    def test_it_may_take_its_time_to_end(self):
        how = self.launcher("mpirun", 'trap "sleep 12; echo ended; exit 0" TERM; ' + WORKS)
        done = kolo_run(*how, "--timeout", "1", "p", PATH=self.path)
        self.assertEqual((done.returncode, done.stdout), (124, "ended\n"), done)

    def test_one_that_does_not_end_is_killed_when_asked_again(self):
        job = self.start('trap "echo asked" TERM; echo ready; ' + WORKS, "--timeout", "60")
        self.assertEqual(job.stdout.readline(), "ready\n")
        for pause in (1.5, 0):  # above a second, within which it would be the same request
            job.send_signal(signal.SIGTERM)
            self.assertEqual(job.stdout.readline(), "asked\n")
            time.sleep(pause)
        self.assertEqual(job.wait(SOON), 137)

    def test_a_terminals_signal_comes_once(self):
        script = ('trap "n=\\$((n + 1)); echo int \\$n" INT; trap "echo at all \\$n; exit 0" TERM; echo ready; '
                  + WORKS)
        arguments = ["kolo-run", *self.launcher("mpirun", script), "--timeout", "60", "p"]
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(PROGRAMS["kolo_run"], arguments, clean({"PATH": self.path}))
        try:
            read_until(terminal, "ready")
            os.kill(pid, signal.SIGSTOP)  # it takes its own later: two at a time could be one
            self.expect_stopped([pid], True)
            os.write(terminal, b"\x03")  # Ctrl-C
            read_until(terminal, "int 1")
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGTERM)
            read_until(terminal, "at all 1")
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        finally:
            os.close(terminal)  # which ends what is left

    def test_time_that_it_is_stopped_does_not_count(self):
        script = f"echo $$; while [ ! -e {self.folder}/go ]; do sleep .1; done; echo went on"
        # A group that nobody of the session looks after is not stopped.
        job = self.start(script, "--timeout", "4", process_group=0)
        pids = [job.stdout.readline().strip(), job.pid]
        job.send_signal(signal.SIGTSTP)
        self.expect_stopped(pids, True)
        time.sleep(5)
        job.send_signal(signal.SIGCONT)
        self.expect_stopped(pids, False)
        pathlib.Path(self.folder, "go").touch()
        self.assertEqual((job.stdout.read(), job.wait(SOON)), ("went on\n", 0))

    def test_the_limit_asks_nobody_who_ends_already(self):
        job = self.start('trap "sleep 14; echo ended; exit 0" TERM; echo ready; ' + WORKS, "--timeout", "3")
        self.assertEqual(job.stdout.readline(), "ready\n")
        job.send_signal(signal.SIGTERM)
        self.assertEqual((job.stdout.read(), job.wait(SOON)), ("ended\n", 0))

    def test_a_terminal_that_goes_away_ends_it(self):
        script = f'trap "touch {self.folder}/heard; exit 0" HUP; echo ready; ' + WORKS
        arguments = ["kolo-run", *self.launcher("mpirun", script), "--timeout", "60", "p"]
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(PROGRAMS["kolo_run"], arguments, clean({"PATH": self.path}))
        read_until(terminal, "ready")
        os.close(terminal)
        os.waitpid(pid, 0)
        self.assertTrue(pathlib.Path(self.folder, "heard").exists())

    def expect_stopped(self, pids, stopped):
        end = time.monotonic() + SOON
        while any((state_of(pid) == "T") != stopped for pid in pids):
            self.assertLess(time.monotonic(), end, [(pid, state_of(pid)) for pid in pids])
            time.sleep(0.01)
