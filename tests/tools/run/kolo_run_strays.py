"""Tests of kolo_run_waits_test: what ranks have started that has left their process groups."""
import os
import pathlib
import select
import signal
import tempfile
import time
import unittest

from kolo_run_ends import SOON, agent_in, start
from launching import kolo_run

SHELL = 'shift\nexec sh -c "$*"'


def is_alive(pid):
    try:
        os.kill(pid, 0)
        return "Z" not in pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False


class Strays(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.daemon = self.program("daemon", f"trap 'echo > {self.folder}/asked; kill $!; exit' TERM\n"
                                             f"sleep 600 & "
                                             f"echo $$ > {self.folder}/pid; wait")

    def program(self, name, script):
        path = pathlib.Path(self.folder, name)
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
        path.chmod(0o755)
        return str(path)

    def pid(self):
        return int(pathlib.Path(self.folder, "pid").read_text(encoding="ascii"))

    def was_asked(self):
        return pathlib.Path(self.folder, "asked").exists()

    def start_and_end(self, status):
        return f'setsid {self.daemon} > /dev/null 2>&1 & until [ -s {self.folder}/pid ]; do sleep .05; done; exit {status}'

    def test_they_end_with_the_job(self):
        other = ["-H", "other", *agent_in(self.folder, SHELL)]
        for how, status in ((["-np", "1", "-t"], 0), (["-np", "1"], 0), (["-np", "1"], 3), (other, 0), (other, 3)):
            with self.subTest(how=how, status=status):
                done = kolo_run(*how, "sh", "-c", self.start_and_end(status))
                alive = is_alive(self.pid())
                if alive:
                    os.kill(self.pid(), signal.SIGKILL)
                self.assertEqual((done.returncode, alive, self.was_asked()), (status, False, True), done)
                for name in ("pid", "asked"):
                    os.remove(f"{self.folder}/{name}")

    def test_one_that_leaves_its_group_late_is_waited_for_no_longer(self):
        # By then kolo-run has taken note of the rank's end, and found the group still there.
        late = (f"(while kill -0 $$; do sleep .01; done; exec setsid {self.daemon}) > /dev/null 2>&1 & exit 0")
        began = time.monotonic()
        done = kolo_run("-np", "2", "sh", "-c", f"[ $RANK = 0 ] || exit 0; {late}")
        took = time.monotonic() - began
        self.assertEqual((done.returncode, is_alive(self.pid()), self.was_asked()), (0, False, True), done)
        self.assertLess(took, 8)

    def test_one_that_does_not_listen_is_killed(self):
        self.program("daemon", f"trap '' TERM\necho $$ > {self.folder}/pid\nwhile :; do sleep .1; done")
        done = kolo_run("-np", "2", "sh", "-c", f"[ $RANK = 0 ] || exit 0; {self.start_and_end(3)}")
        alive = is_alive(self.pid())
        if alive:
            os.kill(self.pid(), signal.SIGKILL)
        self.assertEqual((done.returncode, alive), (3, False), done)

    def test_what_an_agent_leaves_may_stay(self):
        # A connection that ssh shares stays for the next job (ControlPersist).
        script = f"setsid {self.daemon} > /dev/null 2>&1 & until [ -s {self.folder}/pid ]; do sleep .05; done\n{SHELL}"
        done = kolo_run("-H", "other", *agent_in(self.folder, script), "true")
        self.assertTrue(is_alive(self.pid()), done)
        daemon = os.pidfd_open(self.pid())
        signal.pidfd_send_signal(daemon, signal.SIGTERM)
        # It writes into the folder, so the folder goes after it.
        self.assertTrue(select.select([daemon], [], [], SOON)[0], "the daemon did not end")
        os.close(daemon)
        self.assertTrue(self.was_asked())

    def test_nothing_is_waited_for_where_there_is_none(self):
        saves = 'trap "exit 0" TERM; echo ready; while :; do sleep .1; done'
        with start("-H", "localhost,other", *agent_in(self.folder, SHELL), "sh", "-c", saves) as job:
            try:
                self.assertEqual([job.stdout.readline() for _ in range(2)], ["ready\n"] * 2)
                began = time.monotonic()
                job.send_signal(signal.SIGTERM)
                self.assertEqual(job.wait(SOON), 143)
                self.assertLess(time.monotonic() - began, 4)
            finally:
                job.kill()
