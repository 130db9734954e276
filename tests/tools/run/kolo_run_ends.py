"""Tests of kolo_run_test, and the stuck ones of kolo_run_waits_test: how jobs end, and what becomes of output
that nobody takes."""
import os
import pathlib
import pty
import re
import signal
import subprocess
import tempfile
import time
import unittest

from launching import LIMIT, PROGRAMS, clean, kolo_run

SOON = 20  # seconds, where a fault would take for ever or as long as a rank sleeps
SAVES = 'trap "sleep .5; echo saved; exit 0" TERM; echo ready; while :; do sleep .1; done'


def start(*arguments, **options):
    settings = {"text": True, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "env": clean({})}
    return subprocess.Popen([PROGRAMS["kolo_run"], *arguments], **(settings | options))


def agent_in(folder, script):
    """What takes the place of ssh; its arguments are the host and the shell's command."""
    path = pathlib.Path(folder, "agent")
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
    path.chmod(0o755)
    return ["--agent", str(path), "--address", "127.0.0.1"]


class Stops(unittest.TestCase):
    def expect_end(self, job, code, seconds=SOON):
        began = time.monotonic()
        try:
            self.assertEqual(job.wait(seconds), code)
        finally:
            job.kill()
        return time.monotonic() - began

    def test_a_signal_that_comes_twice_at_once(self):
        with start("-np", "2", "sh", "-c", SAVES, stderr=subprocess.PIPE) as job:
            self.assertEqual([job.stdout.readline() for _ in range(2)], ["ready\n"] * 2)
            job.send_signal(signal.SIGTERM)  # as timeout(1) does: its child, then its group
            said = ""
            while "got signal 15" not in said:  # ranks' shells may say "Terminated" before
                said = job.stderr.readline()
                self.assertNotEqual(said, "")
            job.send_signal(signal.SIGTERM)
            self.assertEqual(job.communicate(timeout=LIMIT)[0], "saved\n" * 2)
            self.assertEqual(job.returncode, 143)

    def test_a_rank_that_ends_without_meeting_the_others(self):
        probe = PROGRAMS["probe"]
        for script in (f"test $RANK = 1 || exec {probe}", f"{probe} >&2 && {{ test $RANK = 1 || exec {probe}; }}"):
            with start("-np", "2", "sh", "-c", script, stderr=subprocess.PIPE, env=clean({"KOLO_INIT_TIMEOUT": "10"})) as job:
                said = job.communicate(timeout=SOON)[1]
                self.assertIn("rank 1 ended with exit status 0", said)
                self.assertNotEqual(job.returncode, 0)

    def test_what_is_closed_for_it_is_no_sockets(self):
        with tempfile.TemporaryDirectory() as folder:
            script = f'for fd in 0 1 2; do link=$(readlink /proc/$$/fd/$fd); echo "$link" >&3; done 3>{folder}/$RANK; exec {PROGRAMS["probe"]}'
            closed = ["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', PROGRAMS["kolo_run"], "-np", "2", "sh", "-c", script]
            done = subprocess.run(closed, check=False, timeout=LIMIT, env=clean({}))
            self.assertEqual(done.returncode, 0)
            for rank in "01":
                self.assertEqual(pathlib.Path(folder, rank).read_text(encoding="utf-8"), "/dev/null\n" * 3)

    def test_a_second_signal_kills(self):
        stays = 'trap "echo asked" TERM; echo ready; while :; do sleep .1; done'
        with start("-np", "1", "sh", "-c", stays) as job:
            self.assertEqual(job.stdout.readline(), "ready\n")
            job.send_signal(signal.SIGTERM)
            self.assertEqual(job.stdout.readline(), "asked\n")
            time.sleep(1.5)  # not the same request any more
            job.send_signal(signal.SIGTERM)
            self.expect_end(job, 143)

    def test_the_grace(self):
        stays = 'trap "" TERM; echo ready; while :; do sleep .1; done'
        with start("-np", "1", "--grace", "1", "sh", "-c", stays, stderr=subprocess.DEVNULL) as job:
            self.assertEqual(job.stdout.readline(), "ready\n")
            job.send_signal(signal.SIGTERM)
            self.assertLess(self.expect_end(job, 143), 5)
        # After a signal there is more time than after a failure.
        with start("-np", "1", "sh", "-c", 'trap "sleep 7; echo saved; exit 0" TERM; echo ready; sleep 60 & wait',
                   stderr=subprocess.DEVNULL) as job:
            self.assertEqual(job.stdout.readline(), "ready\n")
            job.send_signal(signal.SIGTERM)
            self.assertEqual(job.communicate(timeout=LIMIT)[0], "saved\n")

    def test_nobody_reads(self):
        for together in (False, True):
            errors = subprocess.STDOUT if together else subprocess.DEVNULL
            with start("-np", "1", "-t", "--timeout", "2", "yes", stderr=errors) as job:
                self.expect_end(job, 124, 10)
            with start("-np", "1", "-t", "yes", stderr=errors) as job:
                self.assertEqual(job.stdout.readline(), "[0] y\n")
                job.send_signal(signal.SIGTERM)
                self.expect_end(job, 143, 10)

    def test_an_agent_that_does_not_read(self):
        with tempfile.TemporaryDirectory() as folder:
            agent = agent_in(folder, "exec sleep 600")
            with start("-H", "other", *agent, "--timeout", "1", "-x", "LONG=" + "x" * 100000, "true",
                       stderr=subprocess.DEVNULL) as job:
                self.expect_end(job, 124)

    def test_an_agent_that_asks(self):
        with tempfile.TemporaryDirectory() as folder:
            # A terminal stops those in the background that read from it.
            agent = agent_in(folder, "read answer < /dev/tty; exit 3")
            command = [PROGRAMS["kolo_run"], "-H", "other", *agent, "true"]
            pid, terminal = pty.fork()
            if pid == 0:
                os.execve(command[0], command, clean({}))
            try:
                end = time.monotonic() + SOON
                while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                    self.assertLess(time.monotonic(), end)
                    time.sleep(0.05)
            finally:
                os.kill(pid, signal.SIGKILL)
                status = os.waitpid(pid, 0)[1]
                os.close(terminal)
            self.assertEqual(os.waitstatus_to_exitcode(status), 3)

    def test_ssh_asks_nothing_and_does_not_wait(self):
        with tempfile.TemporaryDirectory() as folder:
            ssh = pathlib.Path(folder, "ssh")
            ssh.write_text('#!/bin/sh\necho "$@" | head -n 1 >&2\nexit 255\n', encoding="ascii")
            ssh.chmod(0o755)
            for agent in ([], ["--agent", f"{ssh} -p 2222"]):
                done = kolo_run("-H", "other", "--address", "127.0.0.1", *agent, "true",
                                PATH=f"{folder}:{os.environ['PATH']}")
                self.assertEqual(done.returncode, 255, done)
                for option in ("BatchMode=yes", "ConnectTimeout=30", "ServerAliveInterval=30"):
                    self.assertIn(f"-o {option}", done.stderr)
                self.assertIn("255, which is ssh's own: see whether `ssh other true` works", done.stderr)
                self.assertEqual("-p 2222" in done.stderr, bool(agent), done)


class Handlers(unittest.TestCase):
    def test_a_handler_may_end_a_rank_that_waits_in_kolo(self):
        with start("-np", "2", PROGRAMS["probe"], "--wait") as job:
            try:
                for _ in range(2):
                    self.assertIn("size=2", job.stdout.readline())
                job.send_signal(signal.SIGTERM)
                self.assertEqual(job.wait(SOON), 143)  # or SIGKILL 30 s after the signal
            finally:
                job.kill()


    def test_an_interrupted_job_does_not_tell_of_ranks_that_have_not_come(self):
        """Although rank 0 goes on waiting for them until it is killed."""
        script = f"trap '' INT; echo ready; test $RANK = 0 && exec {PROGRAMS['probe']}; exec sleep 600"
        with start("-np", "2", "--grace", "4", "sh", "-c", script, stderr=subprocess.PIPE,
                   env=clean({"KOLO_INIT_TIMEOUT": "8"})) as job:
            self.assertEqual([job.stdout.readline() for _ in range(2)], ["ready\n"] * 2)
            job.send_signal(signal.SIGINT)
            self.assertEqual(job.communicate(timeout=LIMIT),
                             ("", "kolo-run: interrupted by signal 2; passing it on to all ranks\n"))
            self.assertEqual(job.returncode, 130)


class Stuck(unittest.TestCase):
    """A rank that not even SIGKILL ends, as in the kernel, on a file server that is gone: the freezer of the first
    version keeps that waiting."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.group = group = pathlib.Path(f"/sys/fs/cgroup/freezer/kolo_run_waits_test.{os.getpid()}")
        try:
            group.mkdir()
        except OSError as error:
            self.skipTest(f"cannot freeze a process here: {error}")
        self.addCleanup(group.rmdir)
        self.addCleanup(self.await_text, group / "cgroup.procs", "")
        self.addCleanup(pathlib.Path(group, "freezer.state").write_text, "THAWED", encoding="ascii")

    def await_text(self, path, text):
        end = time.monotonic() + SOON
        while path.read_text(encoding="ascii") != text:
            self.assertLess(time.monotonic(), end, path)
            time.sleep(0.05)

    def start(self, *options):
        """Rank 0 is frozen; rank 1 fails when it is told to."""
        script = (f'test $RANK = 0 && echo $$ && exec sleep 600; '
                  f'while [ ! -e {self.folder}/fail ]; do sleep .1; done; exit 7')
        job = start("-np", "2", *options, "sh", "-c", script, stderr=subprocess.PIPE)
        self.addCleanup(job.__exit__, None, None, None)  # it does not read what the frozen one still holds open
        self.addCleanup(job.kill)
        self.pid = job.stdout.readline().strip()
        (self.group / "cgroup.procs").write_text(self.pid, encoding="ascii")
        (self.group / "freezer.state").write_text("FROZEN", encoding="ascii")
        self.await_text(self.group / "freezer.state", "FROZEN\n")
        return job

    def expect_first_failure(self, job):
        pathlib.Path(self.folder, "fail").touch()
        self.assertRegex(job.stderr.readline(), "rank 1 on .* was the first to end with an error, exit status 7")

    def expect_given_up(self, job, code):
        self.assertEqual(job.wait(SOON), code)
        self.assertRegex(job.stderr.readline(), rf"rank 0 on .* \(pid {self.pid}\) does not end by SIGKILL; leaving")

    def test_after_a_signal(self):
        job = self.start()
        self.expect_first_failure(job)
        job.send_signal(signal.SIGTERM)  # after a failure, the first one counts as the second
        self.expect_given_up(job, 7)

    def test_after_a_failure(self):
        job = self.start("--grace", "1", "--time-to-die", "1")
        self.expect_first_failure(job)
        self.expect_given_up(job, 7)

    def test_after_the_timeout(self):
        job = self.start("--grace", "1", "--time-to-die", "1", "--timeout", "3")
        self.assertIn("--timeout of 3 s", job.stderr.readline())
        self.expect_given_up(job, 124)

    def test_who_goes_on_asking_does_not_wait_for_longer(self):
        job = self.start()
        self.expect_first_failure(job)
        end = time.monotonic() + SOON
        while job.poll() is None:
            self.assertLess(time.monotonic(), end)
            job.send_signal(signal.SIGINT)
            time.sleep(1.2)  # above a second, within which it would be the same request
        self.expect_given_up(job, 7)


class Rest(unittest.TestCase):
    """What a rank has started and left running."""

    def test_it_may_write_what_it_has_to(self):
        script = ('exec > >(while read -r line; do echo "$(printf %s 12:00) $line"; done); '
                  "seq 300; echo final")
        expected = [f"12:00 {word}" for word in [*range(1, 301), "final"]]
        for tag in ("[0] ", ""):
            done = kolo_run("-np", "1", *(["-t"] if tag else []), "bash", "-c", script)
            self.assertEqual(done.returncode, 0, done)
            self.assertEqual(done.stdout.splitlines(), [tag + line for line in expected])
        with tempfile.TemporaryDirectory() as folder:
            agent = agent_in(folder, 'shift\nexec sh -c "$*"')
            done = kolo_run("-H", "other", *agent, "bash", "-c", script)
            self.assertEqual(done.stdout.splitlines(), expected, done)

    def test_it_ends_in_order(self):
        rest = '(trap "echo ended; exit" TERM; echo ready; while :; do sleep .1; done)'
        done = kolo_run("-np", "1", "sh", "-c", rest + ' | (read -r line; echo "$line"; kill -9 $$; cat)')
        self.assertEqual((done.returncode, done.stdout), (137, "ready\n"), done)  # at once, after a failure
        done = kolo_run("-np", "1", "sh", "-c", f"{rest} & exit 0")
        self.assertEqual((done.returncode, done.stdout), (0, "ready\nended\n"), done)


class Outputs(unittest.TestCase):
    def test_nobody_reads_any_more(self):
        with tempfile.TemporaryDirectory() as folder:
            for how in (["-np", "2", "-t"], ["-H", "other", *agent_in(folder, 'shift\nexec sh -c "$*"')]):
                with start(*how, "yes", stderr=subprocess.DEVNULL) as job:
                    job.stdout.readline()
                    job.stdout.close()
                    self.assertEqual(job.wait(SOON), 128 + signal.SIGPIPE)

    def test_a_full_disk(self):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink("/dev/full", f"{folder}/rank.0.out")
            done = kolo_run("-np", "2", "--output-dir", folder, "sh", "-c", "seq 100000; seq 100000")
            self.assertEqual(done.returncode, 1, done)
            self.assertEqual(done.stderr, f"kolo-run: cannot write {folder}/rank.0.out: No space left on device; "
                                          "output of rank 0 is lost from here on\n")
            self.assertEqual(len(pathlib.Path(folder, "rank.1.out").read_text(encoding="ascii").splitlines()), 200000)

    def test_a_slow_reader_gets_all(self):
        with start("-np", "2", "-t", "seq", "100000") as job:
            ends = [0, 0]
            for line in job.stdout:
                rank, number = re.fullmatch(r"\[([01])\] (\d+)\n", line).groups()
                ends[int(rank)] += 1
                self.assertEqual(int(number), ends[int(rank)])
            self.assertEqual((ends, job.wait(LIMIT)), ([100000] * 2, 0))

    def test_lines_that_have_no_end(self):
        # A rank that waits until its progress has been seen.
        with tempfile.TemporaryDirectory() as folder:
            script = f'printf "10%%\\r20%%\\r\\nx"; while [ ! -e {folder}/seen ]; do sleep .1; done'
            with start("-np", "1", "-t", "sh", "-c", script, text=False) as job:
                self.assertEqual(os.read(job.stdout.fileno(), 100), b"[0] 10%\r[0] 20%\r\n")
                pathlib.Path(folder, "seen").touch()
                self.assertEqual(job.communicate(timeout=LIMIT)[0], b"[0] x\n")
        done = kolo_run("-np", "1", "-t", "sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x")
        lines = done.stdout.splitlines()
        self.assertEqual(sum(len(line) - len("[0] ") for line in lines), 300000)
        self.assertGreater(len(lines), 1)


class Remote(unittest.TestCase):
    """Ranks by an agent, which is a shell on this host."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def agent(self, script='shift\nexec sh -c "$*"'):
        return agent_in(self.folder, script)

    def test_the_first_failure_is_on_another_host(self):
        # News of rank 1 come late, and rank 0 ends for its sake.
        agent = self.agent(f'shift\nsh -c "$*"; code=$?; touch {self.folder}/dead; sleep .1; exit $code')
        wait = f"while [ ! -e {self.folder}/dead ]; do sleep .01; done; exit 3"
        done = kolo_run("-H", "localhost,other", *agent, "sh", "-c", f'test $RANK = 0 || kill -9 $$; {wait}')
        self.assertEqual(done.returncode, 137, done)
        self.assertIn("rank 1 on other was the first to end with an error, exit status 137; ending", done.stderr)

    def test_user_signals_reach_ranks_of_other_hosts(self):
        script = 'trap "echo one" USR1; trap "echo two; exit 0" USR2; echo ready; while :; do sleep .1; done'
        with start("-H", "localhost,other", *self.agent(), "sh", "-c", script) as job:
            for sent, line in ((None, "ready\n"), (signal.SIGUSR1, "one\n"), (signal.SIGUSR2, "two\n")):
                if sent:
                    job.send_signal(sent)
                self.assertEqual([job.stdout.readline() for _ in range(2)], [line] * 2)
            self.assertEqual(job.wait(LIMIT), 0)

    def test_few_log_in_at_once(self):
        # Each that has come waits for its turn to be counted, with those that are still there.
        agent = self.agent(f'exec 9>{self.folder}/lock\nmkdir {self.folder}/login.$$\nsleep .2\n'
                           f'flock 9; ls {self.folder} | grep -c login >> {self.folder}/counts\n'
                           f'rmdir {self.folder}/login.$$; exec 9>&-; shift; exec sh -c "$*"')
        done = kolo_run("-H", "other:20", *agent, "sh", "-c", "echo $RANK")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(sorted(map(int, done.stdout.split())), list(range(20)), "nothing else is printed")
        counts = [int(word) for word in pathlib.Path(self.folder, "counts").read_text(encoding="ascii").split()]
        self.assertEqual(len(counts), 20)
        self.assertLessEqual(max(counts), 8)

    def test_the_grace_reaches_other_hosts(self):
        stays = 'trap "" TERM; echo ready; while :; do sleep .1; done'
        with start("-H", "other", *self.agent(), "--grace", "1", "sh", "-c", stays, stderr=subprocess.DEVNULL) as job:
            self.assertEqual(job.stdout.readline(), "ready\n")
            began = time.monotonic()
            job.send_signal(signal.SIGTERM)
            self.assertEqual(job.wait(SOON), 143)
            self.assertLess(time.monotonic() - began, 5)
