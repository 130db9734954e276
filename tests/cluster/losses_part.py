"""The digits example by every rendezvous method, on two and four ranks and on one and two hosts: the same losses for
the same layout. Few steps, for it is the start that differs."""
import json
import math
import unittest

import mpirun_part
import services
import wheel
from hosts import NotPossible, require
from ways import LIMIT, by_hand, cluster, environment, folder, program, run

STEPS = 3
ONE_HOST = ([0, 0], [0, 0, 0, 0])
LAYOUTS = ([0, 0], [0, 0, 1, 1])
MORE_LAYOUTS = (*ONE_HOST, [0, 1], [0, 0, 1, 1])

SSH = []
TORCHRUN = []
LACKING = {}  # what this machine has not, and why
FIRST = {}  # by layout, the way that came first and its losses


def prepare(hosts):
    SSH.extend(services.start_ssh(hosts))
    mpirun_part.SSH.extend(SSH)
    for name, start in (("mpirun", lambda: require(("mpirun.openmpi", "openmpi-bin"))),
                        ("slurm", lambda: services.start_slurm(hosts)),
                        ("torchrun", lambda: TORCHRUN.append(wheel.torchrun_of(program("python"),
                                                                              folder() / "torchrun")))):
        try:
            start()
        except NotPossible as reason:
            LACKING[name] = str(reason)


def hosts_of(layout):
    return ",".join(f"kolohost{host}:{layout.count(host)}" for host in dict.fromkeys(layout))


def hostfile(layout):
    path = folder() / "hostfile"
    path.write_text("".join(f"kolohost{host}\n" for host in layout), encoding="ascii")
    return str(path)


def kolo_run(layout, *arguments, **variables):
    return ended(run(program("kolo_run"), "--agent", " ".join(SSH), "-H", hosts_of(layout), *arguments, **variables))


def ended(done):
    return [done.returncode], done.stdout + done.stderr


def one_a_node(layout, command_of):
    """A launcher on each node, as torchrun and kolo-run in its manner."""
    nodes = sorted(set(layout))
    started = [cluster().hosts[node].start(*command_of(node, len(nodes), layout.count(node)), env=environment(),
                                           text=True, stdout=-1, stderr=-1, stdin=-3) for node in nodes]
    outputs = [process.communicate(timeout=LIMIT) for process in started]
    return [process.returncode for process in started], str(outputs)


def by_method(layout, line, method):
    def variables(rank):
        return {"KOLO_RANK": str(rank), "KOLO_SIZE": str(len(layout)), "KOLO_INIT_METHOD": method}
    codes, out, errors = by_hand(layout, lambda rank: line, variables)
    return codes, out + errors


class Losses(unittest.TestCase):
    def expect(self, way, start, layouts=LAYOUTS, needs=None):
        if needs in LACKING:
            self.skipTest(LACKING[needs])
        for layout in layouts:
            with self.subTest(layout=layout):
                path = folder() / "losses"
                path.unlink(missing_ok=True)
                codes, output = start(layout, [
                    program("digits"), "--data", program("data"), "--threads", "1", "--max-steps", str(STEPS),
                    "--epochs", "1", "--no-dropout", "--log-losses", str(path)])
                self.assertEqual(set(codes), {0}, output)
                curve = [json.loads(text)["loss"] for text in path.read_text(encoding="ascii").splitlines()]
                self.assertEqual(len(curve), STEPS, output)
                first, losses = FIRST.setdefault(tuple(layout), (way, curve))
                # Which algorithm sums, and so in which order, depends on what the links measure.
                self.assertTrue(all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(curve, losses)),
                                f"{curve} by {way}, and {losses} by {first}")

    def test_env(self):
        def start(layout, line):
            codes, out, errors = by_hand(layout, lambda rank: line, lambda rank: {
                "RANK": str(rank), "WORLD_SIZE": str(len(layout)), "MASTER_ADDR": "kolohost0",
                "MASTER_PORT": "29500", "KOLO_INIT_METHOD": "env://"})
            return codes, out + errors
        self.expect("env://", start, MORE_LAYOUTS)

    def test_tcp(self):
        self.expect("tcp://", lambda layout, line: by_method(layout, line, "tcp://kolohost0:29600"))

    def test_file(self):
        self.expect("file://", lambda layout, line: by_method(layout, line, f"file://{folder()}/meeting"))

    def test_spawn(self):
        self.expect("kolo::spawn", lambda layout, line: ended(run(*line, "--spawn", str(len(layout)))), ONE_HOST)

    def test_kolo_run(self):
        self.expect("kolo-run", lambda layout, line: kolo_run(layout, *line), MORE_LAYOUTS)

    def test_kolo_run_by_mpirun(self):
        self.expect("kolo-run --launcher mpirun", lambda layout, line: kolo_run(
            layout, "--launcher", "mpirun", *line, **mpirun_part.settings()), needs="mpirun")

    def test_kolo_run_by_srun(self):
        self.expect("kolo-run --launcher srun", lambda layout, line: kolo_run(layout, "--launcher", "srun", *line),
                    needs="slurm")

    def test_kolo_run_on_each_node(self):
        self.expect("kolo-run on each node", lambda layout, line: one_a_node(layout, lambda node, nodes, here: [
            program("kolo_run"), "--nproc_per_node", str(here), "--nnodes", str(nodes), "--node_rank", str(node),
            "--master_addr", "kolohost0", *line]))

    def test_torchrun(self):
        self.expect("torchrun", lambda layout, line: one_a_node(layout, lambda node, nodes, here: [
            *TORCHRUN, "--no-python", "--nproc-per-node", str(here), "--nnodes", str(nodes), "--node-rank", str(node),
            "--master-addr", "kolohost0", *line]), needs="torchrun")

    def test_mpirun(self):
        self.expect("mpirun", lambda layout, line: ended(mpirun_part.mpirun(
            "--hostfile", hostfile(layout), "-map-by", "seq", "-np", str(len(layout)), *line)), needs="mpirun")

    def test_pmix(self):
        if "has no PMIx" in run(program("probe"), KOLO_INIT_METHOD="pmix://").stderr:
            self.skipTest("this build has no PMIx")
        self.expect("pmix://", lambda layout, line: ended(mpirun_part.mpirun(
            "--hostfile", hostfile(layout), "-map-by", "seq", "-np", str(len(layout)), "-x",
            "KOLO_INIT_METHOD=pmix://", *line)), needs="mpirun")

    def test_srun(self):
        self.expect("srun", lambda layout, line: ended(run(
            "srun", "-n", str(len(layout)), "-m", "arbitrary", *line, SLURM_HOSTFILE=hostfile(layout))),
                    needs="slurm")
