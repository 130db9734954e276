"""Open MPI 5's mpirun (PRRTE) from the first host, its daemons on the others by ssh."""
import os
import unittest

import services
from hosts import require_peer
from ways import LAYOUTS, SHARED, check, folder, program, run

FOUND = []
SSH = []


def prepare(cluster):
    FOUND.append(require_peer(SHARED.get("peers"), "openmpi5"))
    SSH.extend(services.start_ssh(cluster))


def mpirun(*arguments, **variables):
    prefix = FOUND[0]
    return run(f"{prefix}/bin/mpirun", "--allow-run-as-root", "--bind-to", "none", *arguments,
               PATH=f"{prefix}/bin:{os.environ['PATH']}", LD_LIBRARY_PATH=f"{prefix}/lib/openmpi",
               PRTE_MCA_plm_ssh_agent=" ".join(SSH), PRTE_MCA_prte_if_include="eth0",
               PMIX_MCA_ptl_tcp_if_include="eth0", OMPI_MCA_btl_tcp_if_include="eth0", **variables)


class Table(unittest.TestCase):
    def test_mpirun(self):
        for name, layout in LAYOUTS.items():
            with self.subTest(name):
                hosts = folder() / "hostfile"
                hosts.write_text("".join(f"kolohost{host}\n" for host in layout), encoding="ascii")
                # Its libraries are found by its daemons alone: the probe has those that it was built with.
                done = mpirun("--hostfile", str(hosts), "--map-by", "seq", "-np", str(len(layout)),
                              "env", "-u", "LD_LIBRARY_PATH", program("probe"))
                check(self, layout, done.stdout, done.stderr, [done.returncode])
