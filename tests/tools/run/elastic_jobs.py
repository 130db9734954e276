"""Elastic jobs of elastic_worker under kolo-run, and what they have said. For kolo_run_elastic_test, and for the
emulated hosts of tests/cluster."""
import os
import pathlib
import re
import signal
import subprocess
import threading

LIMIT = 90  # seconds for anything to happen
WORLD = re.compile(r"world (\d+): process (\d+) \(pid (\d+)\) is rank (\d+) of (\d+) on (\S+)")


def command_of(worker, stop):
    """elastic_worker, which trains until the file `stop` is there."""
    number = "${KOLO_PROCESS:-${OMPI_COMM_WORLD_RANK:-$SLURM_PROCID}}"
    return ["sh", "-c", f'exec "$0" "$1" "{number}"', worker, str(stop)]


class Hosts:
    """A program for --host-discovery that prints what set() was told last."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.script = self.folder / "hosts.sh"
        self.script.write_text(f"#!/bin/sh\n. {self.folder}/listed\n", encoding="ascii")
        self.script.chmod(0o755)

    def set(self, *lines, command=None):
        """`command`: what the program does instead of printing lines."""
        fresh = self.folder / "listed.new"
        fresh.write_text(f"{command or ''}\n" + "".join(f"echo '{line}'\n" for line in lines), encoding="ascii")
        fresh.rename(self.folder / "listed")


class Said:
    """What a job has said so far."""

    def __init__(self):
        self.text = ""
        self.changed = threading.Condition()


class Job:
    """One run; `start` takes a command line as subprocess.Popen does. `among`: a run of the same job, on another
    node; what both say is read together."""

    def __init__(self, command, start=subprocess.Popen, among=None, **settings):
        self.process = start(command, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, **settings)
        self.said = among.said if among else Said()
        self.changed = self.said.changed
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    @property
    def text(self):
        return self.said.text

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.said.text += line
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
        """By generation: its processes as {number: (pid, host)}, once all of them have said that it stands."""
        found = {}
        for generation, process, pid, _, size, host in WORLD.findall(self.text):
            found.setdefault(int(generation), (int(size), {}))[1][int(process)] = (int(pid), host)
        return {generation: members for generation, (size, members) in found.items() if len(members) == size}

    def await_world(self, *hosts, after=0):
        """Waits for a world with a process on each of these hosts; its generation and processes."""
        def later():
            return [(generation, members) for generation, members in sorted(self.worlds().items())
                    if generation > after and sorted(host for _, host in members.values()) == sorted(hosts)]
        self.wait(later, f"a world on {hosts} after world {after}")
        return later()[0]

    def end(self, test, code=0):
        self.wait(lambda: self.process.poll() is not None, "the job's end")
        self.reader.join(LIMIT)
        test.assertEqual(self.process.returncode, code, self.text)
        test.assertNotIn("WRONG", self.text)

    def close(self):
        """Whatever has become of it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            os.kill(self.process.pid, signal.SIGKILL)
        self.reader.join(LIMIT)
        self.process.stdout.close()
