"""Open MPI's mpirun from the first host, its daemons on the others by ssh."""
import unittest

import services
from hosts import require
from ways import LAYOUTS, check, folder, program, run

SSH = []


def prepare(cluster):
    require(("mpirun.openmpi", "openmpi-bin"))
    SSH.extend(services.start_ssh(cluster))


def settings():
    """By the environment, as mpirun and its daemons take them."""
    values = {"plm_rsh_agent": " ".join(SSH), "oob_tcp_if_include": "eth0", "btl_tcp_if_include": "eth0",
                "mpi_yield_when_idle": "1", "hwloc_base_binding_policy": "none",
                "btl_base_warn_component_unused": "0", "btl": "^openib"}
    return {f"OMPI_MCA_{name}": value for name, value in values.items()}


def mpirun(*arguments, **variables):
    return run("mpirun.openmpi", "--allow-run-as-root", *arguments, **settings(), **variables)


class Table(unittest.TestCase):
    def test_mpirun(self):
        self.expect_layouts()

    def test_pmix(self):
        done = mpirun("-np", "1", program("probe"), KOLO_INIT_METHOD="pmix://")
        if "has no PMIx" in done.stderr:
            self.skipTest("this build has no PMIx")
        self.expect_layouts("-x", "KOLO_INIT_METHOD=pmix://")

    def expect_layouts(self, *options):
        for name, layout in LAYOUTS.items():
            with self.subTest(name):
                hosts = folder() / "hostfile"
                hosts.write_text("".join(f"kolohost{host}\n" for host in layout), encoding="ascii")
                done = mpirun("--hostfile", str(hosts), "-map-by", "seq", "-np", str(len(layout)), *options,
                              program("probe"))
                check(self, layout, done.stdout, done.stderr, [done.returncode])

    def test_as_on_a_machine_with_several_ranks_a_node(self):
        hosts = folder() / "hostfile"
        hosts.write_text("kolohost0 slots=2\nkolohost1 slots=2\n", encoding="ascii")
        done = mpirun("-np", "4", "-map-by", "ppr:2:node", "-hostfile", str(hosts), program("probe"))
        check(self, [0, 0, 1, 1], done.stdout, done.stderr, [done.returncode])
