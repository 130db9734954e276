"""Tests of kolo_run_waits_test: jobs that are stopped, as by Ctrl-Z, and go on."""
import os
import pathlib
import pty
import select
import signal
import tempfile
import time
import unittest

from kolo_run_ends import SOON, agent_in, start
from launching import PROGRAMS


def state_of(pid):
    """A letter of ps: T is stopped, and D is a shell that waits for its child, which is."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]


def read_until(terminal, word):
    end, seen = time.monotonic() + SOON, ""
    while word not in seen:
        if not select.select([terminal], [], [], max(0, end - time.monotonic()))[0]:
            raise AssertionError(f"no '{word}' in {seen!r}")
        seen += os.read(terminal, 4096).decode()


class Pauses(unittest.TestCase):
    def expect_stopped(self, pids, stopped):
        end = time.monotonic() + SOON
        while any((state_of(pid) in "TD") != stopped for pid in pids):
            self.assertLess(time.monotonic(), end, [(pid, state_of(pid)) for pid in pids])
            time.sleep(0.01)

    def test_all_ranks_stop_and_go_on(self):
        with tempfile.TemporaryDirectory() as folder:
            agent = agent_in(folder, 'shift\nexec sh -c "$*"')
            script = f'echo $$; while [ ! -e {folder}/go ]; do sleep .1; done; echo went on'
            with start("-H", "localhost,other:2", *agent, "--timeout", "6", "sh", "-c", script) as job:
                try:
                    ranks = [job.stdout.readline().strip() for _ in range(3)]
                    for pause in (0, 7):  # the time that it is stopped does not count
                        job.send_signal(signal.SIGTSTP)
                        self.expect_stopped([*ranks, job.pid], True)
                        time.sleep(pause)
                        job.send_signal(signal.SIGCONT)
                        self.expect_stopped([*ranks, job.pid], False)
                    pathlib.Path(folder, "go").touch()
                    self.assertEqual((job.stdout.read(), job.wait(SOON)), ("went on\n" * 3, 0))
                finally:
                    job.kill()

    def test_a_terminal_without_a_shell_stops_nothing_for_good(self):
        # As of `ssh -t host kolo-run` and of containers: nobody there could let it go on.
        script = 'trap "echo continued; exit 0" CONT; echo ready; while :; do sleep .1; done'
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(PROGRAMS["kolo_run"], ["kolo-run", "-np", "1", "sh", "-c", script])
        try:
            read_until(terminal, "ready")
            os.write(terminal, b"\x1a")  # Ctrl-Z
            read_until(terminal, "continued")
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        finally:
            os.close(terminal)  # which ends what is left

    def test_a_stopped_job_ends_in_order(self):
        saves = 'trap "echo saved; exit 0" TERM; echo $$; while :; do sleep .1; done'
        with tempfile.TemporaryDirectory() as folder:
            agent = agent_in(folder, 'shift\nexec sh -c "$*"')
            with start("-H", "localhost,other", *agent, "sh", "-c", saves) as job:
                try:
                    ranks = [job.stdout.readline().strip() for _ in range(2)]
                    job.send_signal(signal.SIGTSTP)
                    self.expect_stopped([*ranks, job.pid], True)
                    job.send_signal(signal.SIGTERM)  # as `kill %1` in a shell
                    job.send_signal(signal.SIGCONT)
                    self.assertEqual((job.stdout.read(), job.wait(SOON)), ("saved\n" * 2, 143))
                finally:
                    job.kill()

    def test_a_stopped_rank_is_asked_to_end(self):
        script = ('trap "echo saved; exit 0" TERM; echo $$; if [ $RANK = 1 ]; then read -r go < $FIFO; exit 3; fi; '
                  "while :; do sleep .1; done")
        with tempfile.TemporaryDirectory() as folder:
            fifo = f"{folder}/fifo"
            with start("-np", "2", "-t", "-x", f"FIFO={fifo}", "sh", "-c", f'[ $RANK = 0 ] || mkfifo {fifo}; {script}') as job:
                try:
                    pids = dict(job.stdout.readline().split() for _ in range(2))
                    os.kill(int(pids["[0]"]), signal.SIGSTOP)
                    self.expect_stopped([pids["[0]"]], True)
                    pathlib.Path(fifo).write_text("\n", encoding="ascii")
                    self.assertEqual((job.stdout.read(), job.wait(SOON)), ("[0] saved\n", 3))
                finally:
                    job.kill()
