"""Elastic jobs of kolo-run over ssh: ranks and whole hosts are lost, and hosts come and go."""
import pathlib
import sys
import tempfile
import unittest

import mpirun_part
import services
from hosts import NotPossible, require
from ways import cluster, environment, folder, program

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools" / "run"))
from elastic_jobs import Hosts, Job, command_of  # noqa: E402

SSH = []
LACKING = {}  # launchers that this machine has not, and why
RECORDINGS = "/dev/shm"  # each host has its own


def prepare(hosts):
    SSH.extend(services.start_ssh(hosts))
    mpirun_part.SSH.extend(SSH)
    for name, start_it in (("mpirun", lambda: require(("mpirun.openmpi", "openmpi-bin"))),
                           ("srun", lambda: services.start_slurm(hosts))):
        try:
            start_it()
        except NotPossible as reason:
            LACKING[name] = str(reason)


def start(command, **settings):
    return cluster().hosts[0].start(*command, **settings)


def recordings_on(host):
    return host.run("sh", "-c", f"ls {RECORDINGS} | grep kolo-flight").stdout


class Elastic(unittest.TestCase):
    def setUp(self):
        own = tempfile.TemporaryDirectory(dir=folder())
        self.addCleanup(own.cleanup)
        self.hosts = Hosts(own.name)
        self.stop = pathlib.Path(own.name) / "stop"

    def start(self, *options, **variables):
        settings = {"KOLO_FLIGHT_RECORDER": RECORDINGS, "KOLO_HEARTBEAT_TIMEOUT": "3"} | variables
        agent = [] if "--launcher" in options else ["--agent", " ".join(SSH), "--bind", "none"]
        job = Job([program("kolo_run"), *agent, *options,
                   *command_of(program("worker"), self.stop)], start, env=environment(**settings))
        self.addCleanup(job.close)
        return job

    def finish(self, job):
        self.stop.touch()
        job.end(self)
        for host in cluster().hosts:
            self.assertEqual(recordings_on(host), "", job.text)
            services.wait_for(lambda host=host: host.run("pgrep", "elastic_worker").returncode != 0,
                              f"the end of all ranks on {host.name}")

    def test_a_rank_on_another_host_is_killed(self):
        job = self.start("-H", "kolohost0:1,kolohost1:2", "--min-np", "2", "--restarts", "1")
        first, members = job.await_world("kolohost0", "kolohost1", "kolohost1")
        pid = members[2][0]
        cluster().hosts[1].run("kill", "-9", str(pid))
        job.expect(r"process 2 on kolohost1 .* ended with exit status 137; the other 2 go on, and it is replaced")
        job.await_world("kolohost0", "kolohost1", "kolohost1", after=first)
        self.finish(job)

    def test_a_rank_on_another_host_is_stopped(self):
        """It ends late, when what ends it sees the new rank beside it."""
        up = f"{self.stop}.up"
        job = self.start("-H", "kolohost0:1,kolohost1:1", "--min-np", "1", "--restarts", "1", "--patience", "3", "sh",
                         "-c", f'[ $KOLO_PROCESS != 2 ] || touch {up}; [ $KOLO_PROCESS = 1 ] || exec "$@"; '
                         f'trap "" TERM; "$@"; until [ -e {up} ]; do sleep .1; done; exit 3', "sh")
        first, members = job.await_world("kolohost0", "kolohost1")
        host = cluster().hosts[1]
        host.run("kill", "-STOP", str(members[1][0]))
        job.expect(r"the others have waited 3 s \(--patience\) for process 1 on kolohost1; killing it")
        _, members = job.await_world("kolohost0", "kolohost1", after=first)
        self.assertEqual(sorted(members), [0, 2])
        # What ends the stopped rank there leaves the new one alone: each has a shell and a guard.
        services.wait_for(lambda: host.run("pgrep", "-cf", "^sh -s").stdout.strip() == "2", "the end of the old rank")
        self.finish(job)
        job.expect("done: process 2")

    def test_a_host_whose_network_is_cut_and_comes_back(self):
        job = self.start("-H", "kolohost0:1,kolohost1:1,kolohost2:1", "--min-np", "2", "--patience", "3")
        first, _ = job.await_world("kolohost0", "kolohost1", "kolohost2")
        cluster().cut(2)
        try:
            job.await_world("kolohost0", "kolohost1", after=first)
        finally:
            cluster().mend(2)
        self.finish(job)

    def start_node(self, node, among=None):
        def on_host(command, **settings):
            return cluster().hosts[node].start(*command, **settings)
        settings = {"KOLO_FLIGHT_RECORDER": RECORDINGS, "KOLO_HEARTBEAT_TIMEOUT": "3", "KOLO_SECRET": "s"}
        job = Job([program("kolo_run"), "--bind", "none", "--nnodes", "2", "--nproc-per-node", "1", "--node-rank",
                   str(node), "--master-addr", "kolohost0", "--min-np", "1",
                   *command_of(program("worker"), self.stop)], on_host, among=among, env=environment(**settings))
        self.addCleanup(job.close)
        return job

    def test_a_node_with_a_kolo_run_of_its_own_is_cut_off_and_comes_back(self):
        node_0 = self.start_node(0)
        node_1 = self.start_node(1, among=node_0)
        first, _ = node_0.await_world("kolohost0", "kolohost1")
        cluster().cut(1)
        try:
            node_0.expect(r"node 1 is gone: its kolo-run has ended, or has not answered for 30 s; lost processes: 1")
            second, _ = node_0.await_world("kolohost0", after=first)
            node_1.end(self, 1)
        finally:
            cluster().mend(1)
        node_0.expect("node 0's kolo-run has ended, or has not answered for 30 s; ending the job")
        node_1 = self.start_node(1, among=node_0)
        _, members = node_0.await_world("kolohost0", "kolohost1", after=second)
        self.assertEqual(sorted(members), [0, 2])
        self.stop.touch()
        node_0.end(self)
        node_1.end(self)
        cluster().hosts[1].run("sh", "-c", f"rm -f {RECORDINGS}/kolo-flight*")

    def test_a_host_whose_processes_all_end(self):
        """Its login, its guard and its rank: the connection breaks, and kolo-run takes the spare slot of another."""
        job = self.start("-H", "kolohost0:1,kolohost1:1,kolohost2:1", "-np", "2", "--min-np", "1", "--restarts", "1")
        first, members = job.await_world("kolohost0", "kolohost1")
        cluster().hosts[1].run("sh", "-c", "pkill -9 -f 'sshd: .*notty'; pkill -9 elastic_worker")
        job.expect(r"process 1 on kolohost1 .* ended with exit status 255; the other 1 go on, and it is replaced "
                   r"\(0 more restarts\); kolohost1 is not used for 5 s, after 1 failure in a row there")
        job.await_world("kolohost0", "kolohost2", after=first)
        self.finish(job)

    def test_a_rank_that_srun_or_mpirun_has_started_is_killed(self):
        # Across hosts, Open MPI 4.1 may end the others, or not end itself.
        for launcher, other, variables in (("srun", "kolohost1", {}), ("mpirun", "kolohost0", mpirun_part.settings())):
            with self.subTest(launcher):
                if launcher in LACKING:
                    self.skipTest(LACKING[launcher])
                self.stop.unlink(missing_ok=True)
                hosts = "kolohost0:3" if other == "kolohost0" else f"kolohost0:1,{other}:2"
                job = self.start("-H", hosts, "--launcher", launcher, "--min-np", "2", **variables)
                first, members = job.await_world("kolohost0", other, other)
                cluster().hosts[int(other[-1])].run("kill", "-9", str(members[1][0]))
                _, members = job.await_world("kolohost0", other, after=first)
                self.assertEqual(sorted(members), [0, 2])
                self.stop.touch()
                job.end(self)
                self.assertEqual(recordings_on(cluster().hosts[0]), "", job.text)
                cluster().hosts[1].run("sh", "-c", f"rm {RECORDINGS}/kolo-flight*")

    def test_a_host_on_which_the_program_fails(self):
        job = self.start("-H", "kolohost0:1,kolohost1:1", "--min-np", "1", "sh", "-c",
                         '[ $(uname -n) != kolohost1 ] || exit 7; exec "$@"', "sh")
        job.expect(r"process 1 on kolohost1 .* ended with exit status 7; the other 1 go on; kolohost1 is not used for 5 s")
        job.await_world("kolohost0")
        self.finish(job)

    def test_hosts_that_let_nobody_in(self):
        job = self.start("-H", "kolohost8:1,kolohost9:1", "--min-np", "1", "--elastic-timeout", "7")
        job.end(self, 124)
        self.assertIn("kolohost9 is not used for 10 s, after 2 failures in a row there", job.text)
        self.assertIn("0 of at least 1 (--min-np) processes are there, after 7 s (--elastic-timeout)", job.text)

    def test_hosts_come_and_go(self):
        self.hosts.set("kolohost0:1")
        job = self.start("--host-discovery", str(self.hosts.script), "--min-np", "1")
        first, _ = job.await_world("kolohost0")
        self.hosts.set("kolohost0:1", "kolohost1 slots=2")
        second, _ = job.await_world("kolohost0", "kolohost1", "kolohost1", after=first)
        self.hosts.set("kolohost0:1", "kolohost2:1")
        job.expect("kolohost1 is not listed any more; asking processes 1, 2 there to end")
        job.expect("saved: process 1 on kolohost1")
        third, _ = job.await_world("kolohost0", "kolohost2", after=second)
        # The last one that has the training's state stays until another has it.
        self.hosts.set("kolohost3:1")
        job.await_world("kolohost3", after=third)
        self.finish(job)

    def test_a_host_that_lets_nobody_in_is_left_alone(self):
        self.hosts.set("kolohost0:1", "kolohost9:1", "kolohost1:1")
        job = self.start("--host-discovery", str(self.hosts.script), "--min-np", "2")
        job.expect("kolohost9 is not used for 5 s, after 1 failure in a row there")
        job.await_world("kolohost0", "kolohost1")
        job.expect("kolohost9 is not used for 10 s, after 2 failures in a row there")
        self.finish(job)
