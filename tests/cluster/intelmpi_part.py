"""Intel MPI's mpirun from the first host."""
import os
import unittest

import services
from hosts import require_peer
from hydra import Hydra, ways_of
from ways import SHARED, check, program

FOUND = []


def prepare(cluster):
    prefix = require_peer(SHARED.get("peers"), "intelmpi")
    FOUND.append(Hydra(f"{prefix}/bin/mpirun", services.start_ssh(cluster), I_MPI_ROOT=str(prefix),
                       PATH=f"{prefix}/bin:{os.environ['PATH']}", I_MPI_PIN="0"))


class Table(unittest.TestCase):
    def test_over_pmi(self):
        FOUND[0].expect_layouts(self, "pmi", KOLO_INIT_METHOD="pmi://")

    def test_by_itself(self):
        done = FOUND[0].run([0, 0, 1, 1], program("probe"), KOLO_LOG_LEVEL="info")
        # Its libfabric leads UCX to warn on the standard output.
        ranks = "\n".join(line for line in done.stdout.splitlines() if line.startswith("rank="))
        check(self, [0, 0, 1, 1], ranks, done.stderr, [done.returncode])
        self.assertLessEqual(ways_of(done), {"pmi", "mpi"}, done.stderr)
