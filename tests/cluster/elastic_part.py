"""Elastic jobs of kolo-run over ssh: ranks and whole hosts are lost, and hosts come and go. The ranks check every
step's sum and weights themselves (tests/chaos/worker.cc)."""
import pathlib
import re
import signal
import subprocess
import threading
import unittest

import services
from ways import LIMIT, cluster, environment, folder, program

SSH = []
WORLD = re.compile(r"world (\d+): pid (\d+) is rank (\d+) of (\d+) at ")
STARTED = re.compile(r"process (\d+) is pid (\d+) on (\S+)")
# The recordings of each host are its own there.
RECORDINGS = "/dev/shm"


def prepare(hosts):
    SSH.extend(services.start_ssh(hosts))


class Job:
    """kolo-run on the first host, and what it and the ranks have said."""

    def __init__(self, *options, epochs=1000, **variables):
        say = 'echo "process $KOLO_PROCESS is pid $$ on $(uname -n)"; exec "$@"'
        command = [program("kolo_run"), "--agent", " ".join(SSH), "--bind", "none", *options, "sh", "-c", say, "sh",
                   program("worker"), "--epochs", str(epochs), "--step-ms", "10"]
        settings = {"KOLO_FLIGHT_RECORDER": RECORDINGS, "KOLO_HEARTBEAT_TIMEOUT": "3", **variables}
        self.process = cluster().hosts[0].start(*command, env=environment(**settings), text=True,
                                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                                stderr=subprocess.STDOUT)
        self.text = ""
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.text += line
                self.changed.notify_all()
        self.process.wait()
        with self.changed:
            self.changed.notify_all()

    def wait(self, is_there, what):
        with self.changed:
            self.changed.wait_for(lambda: is_there() or self.process.poll() is not None, LIMIT)
            if not is_there():
                raise AssertionError(f"{what} did not come; it was said:\n{self.text}")

    def expect(self, words):
        self.wait(lambda: re.search(words, self.text), words)

    def worlds(self):
        """By generation: how many ranks the world has, once all of them have had a right sum in it."""
        found = {}
        for generation, _, rank, size in WORLD.findall(self.text):
            found.setdefault(int(generation), (int(size), set()))[1].add(rank)
        return {generation: size for generation, (size, ranks) in found.items() if len(ranks) == size}

    def await_world(self, size, after=0):
        """Waits for a world of so many ranks; its generation."""
        def later():
            return [generation for generation, n in self.worlds().items() if n == size and generation > after]
        self.wait(later, f"a world of {size} ranks after world {after}")
        return later()[0]

    def pids(self, host):
        """By process, of those that were started there."""
        return {int(process): int(pid) for process, pid, name in STARTED.findall(self.text) if name == host}

    def end(self, test, code=0):
        self.wait(lambda: self.process.poll() is not None, "the job's end")
        self.reader.join(LIMIT)
        test.assertEqual(self.process.returncode, code, self.text)
        test.assertNotIn("WRONG", self.text)

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(LIMIT)
        finally:
            self.process.kill()
            self.reader.join(LIMIT)
            self.process.stdout.close()


def hosts_file(*lines):
    """The script that prints these lines, until it is written anew."""
    script = folder() / "hosts.sh"
    listed = folder() / "listed"
    fresh = pathlib.Path(f"{listed}.new")
    fresh.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    fresh.rename(listed)
    services.write(script, f"#!/bin/sh\nexec cat {listed}\n", 0o755)
    return str(script)


def left_on(host):
    return host.run("sh", "-c", f"ls {RECORDINGS} | grep kolo-flight; ps ax | grep [c]haos_worker").stdout


class Elastic(unittest.TestCase):
    def start(self, *options, **settings):
        job = Job(*options, **settings)
        self.addCleanup(job.close)
        return job

    def test_a_rank_on_another_host_is_killed(self):
        job = self.start("-H", "kolohost0:1,kolohost1:2", "--min-np", "2", "--restarts", "1", epochs=60)
        first = job.await_world(3)
        pid = min(job.pids("kolohost1").values())
        cluster().hosts[1].run("kill", "-9", str(pid))
        job.expect(r"process \d on kolohost1 .* ended with exit status 137; the other 2 go on, and it is replaced")
        job.await_world(3, first)
        job.end(self)
        for host in cluster().hosts[:2]:
            self.assertEqual(left_on(host), "", job.text)

    def test_a_host_whose_network_is_cut_and_comes_back(self):
        job = self.start("-H", "kolohost0:1,kolohost1:1,kolohost2:1", "--min-np", "2", "--patience", "3", epochs=100)
        first = job.await_world(3)
        cluster().cut(2)
        try:
            job.await_world(2, first)
        finally:
            cluster().mend(2)
        job.end(self)
        print(job.text[-3000:])
        for host in cluster().hosts[:3]:
            self.assertEqual(left_on(host), "", job.text)
