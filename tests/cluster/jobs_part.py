"""The scripts of examples/jobs as a user submits them: sbatch, qsub (Slurm's wrapper), ssh."""
import contextlib
import os
import pathlib
import re
import unittest

import services
from hosts import require
from ways import check, folder, program, run

JOBS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "jobs"
SSH = []
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "^openib",
       "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_oob_tcp_if_include": "eth0",
       "OMPI_MCA_btl_tcp_if_include": "eth0", "OMPI_MCA_btl_base_warn_component_unused": "0",
       "OMPI_MCA_rmaps_base_oversubscribe": "1",  # the wrapper asks Slurm for nodes, not for ranks
       "OMPI_MCA_hwloc_base_binding_policy": "none"}


def prepare(hosts):
    require(("mpirun.openmpi", "openmpi-bin"), ("qsub", "slurm-wlm-torque"))
    SSH.extend(services.start_ssh(hosts))
    services.start_slurm(hosts)


@contextlib.contextmanager
def in_folder():
    """As one submits from the folder of the training."""
    here = os.getcwd()
    os.chdir(folder())
    try:
        yield
    finally:
        os.chdir(here)


def submit(*command, **variables):
    """The exit code of the job, and what its script kept in results/ID/log."""
    settings = MPI | {"RANKS_PER_NODE": "2", "LAUNCHER": program("kolo_run"), "PROGRAM": program("probe"),
                      "OMPI_MCA_plm_rsh_agent": " ".join(SSH)} | variables
    with in_folder():
        done = run(*command, **settings)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    job = re.findall(r"\d+", done.stdout)[-1]
    services.wait_for(lambda: run("squeue", "-h", "-j", job).stdout == "", "the job")
    code = int(re.search(r"ExitCode=(\d+):", run("scontrol", "-o", "show", "job", job).stdout)[1])
    return code, (folder() / "results" / job / "log").read_text(encoding="ascii")


class Jobs(unittest.TestCase):
    def sbatch(self, name, *options, **variables):
        return submit("sbatch", "-N", "2", "-w", "kolohost0,kolohost1", "-o", f"{folder()}/job.out", *options,
                      str(JOBS / name), **variables)

    def test_slurm(self):
        two = "--ntasks-per-node=2"
        for name, layout, option in (("slurm_ranks.sh", [0, 0, 1, 1], two), ("slurm_mpirun.sh", [0, 0, 1, 1], two),
                                     ("slurm_launcher_per_node.sh", [0, 0, 1, 1], "--ntasks-per-node=1"),
                                     ("slurm_process_per_node.sh", [0, 1], "--ntasks-per-node=1")):
            with self.subTest(name):
                code, log = self.sbatch(name, option)
                check(self, layout, log, codes=[code])

    def test_the_exit_code_goes_through_tee(self):
        code, _ = self.sbatch("slurm_ranks.sh", "--ntasks-per-node=1", PROGRAM="false")
        # srun says the greatest of its tasks', and may end the second by SIGTERM once the first has failed.
        self.assertIn(code, (1, 128 + 15))

    def test_pbs(self):
        for name, nodes, layout in (("pbs_single_node.sh", 1, [0, 0]), ("pbs_multi_node.sh", 2, [0, 0, 1, 1])):
            with self.subTest(name):
                code, log = submit("qsub", "-q", "main", "-l", f"nodes={nodes}:ppn=2", "-o", f"{folder()}/pbs.out",
                                   "-e", f"{folder()}/pbs.err", str(JOBS / name))
                ranks = "\n".join(line for line in log.splitlines() if line.startswith("rank="))
                check(self, layout, ranks, log, codes=[code])
                self.assertEqual("4 ranks on 2 nodes" in log, nodes == 2, log)

    def test_ssh(self):
        with in_folder():
            done = run(str(JOBS / "ssh_two_nodes.sh"), "kolohost0", "kolohost1", RANKS_PER_NODE="2",
                       LAUNCHER=program("kolo_run"), PROGRAM=program("probe"), SSH=" ".join(SSH))
        check(self, [0, 0, 1, 1], done.stdout, done.stderr, [done.returncode])
