"""MPICH's mpirun from the first host, as Debian has it beside Open MPI."""
import unittest

import services
from hosts import require
from hydra import Hydra, ways_of
from ways import check, program

FOUND = []


def prepare(cluster):
    require(("mpirun.mpich", "mpich"))
    FOUND.append(Hydra("mpirun.mpich", services.start_ssh(cluster)))


class Table(unittest.TestCase):
    def test_over_pmi(self):
        FOUND[0].expect_layouts(self, "pmi", KOLO_INIT_METHOD="pmi://")

    def test_by_itself(self):
        done = FOUND[0].run([0, 0, 1, 1], program("probe"), KOLO_LOG_LEVEL="info")
        check(self, [0, 0, 1, 1], done.stdout, done.stderr, [done.returncode])
        self.assertLessEqual(ways_of(done), {"pmi", "mpi"}, done.stderr)

    def test_over_a_port_of_pmi(self):
        done = FOUND[0].run([0, 1, 0, 1], "-pmi-port", program("probe"))
        check(self, [0, 1, 0, 1], done.stdout, done.stderr, [done.returncode])

    def test_at_an_address(self):
        done = FOUND[0].run([0, 0, 1], program("probe"), KOLO_INIT_METHOD="tcp://kolohost0:29511")
        check(self, [0, 0, 1], done.stdout, done.stderr, [done.returncode])


class Failures(unittest.TestCase):
    def test_a_rank_that_does_not_come_is_named(self):
        line = f"test $PMI_RANK != 1 || exec sleep 20; exec {program('probe')}"
        done = FOUND[0].run([0, 0, 1, 2], "sh", "-c", line, KOLO_INIT_METHOD="pmi://", KOLO_INIT_TIMEOUT="4")
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"1 of 4 ranks did not reach phase '.*' of the bootstrap in time: 1; see")
