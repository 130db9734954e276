"""Hydra, the launcher of MPICH and Intel MPI: its mpirun on the first host, its proxies on the others by
ssh. A kolo of another MPI, or of none, meets over its PMI."""
import re

from ways import LAYOUTS, check, folder, program, run


class Hydra:
    def __init__(self, mpirun, ssh, **variables):
        self.mpirun, self.variables = mpirun, variables
        agent = folder() / "hydra_agent"
        agent.write_text(f"#!/bin/sh\nexec {' '.join(ssh)} \"$@\"\n", encoding="ascii")
        agent.chmod(0o755)
        self.options = ["-launcher", "ssh", "-launcher-exec", str(agent), "-iface", "eth0"]

    def run(self, layout, *command, **variables):
        hosts = folder() / "hydra_hosts"
        names = list(dict.fromkeys(f"kolohost{host}" for host in layout))
        in_turn = layout != sorted(layout)
        counts = [1 if in_turn else layout.count(int(name[-1])) for name in names]
        hosts.write_text("".join(f"{name}:{count}\n" for name, count in zip(names, counts)), encoding="ascii")
        return run(self.mpirun, *self.options, *(["-ppn", "1"] if in_turn else []), "-machinefile", str(hosts),
                   "-np", str(len(layout)), *command, **self.variables, **variables)

    def expect_layouts(self, test, way, **variables):
        """Each layout, by the way that is expected."""
        for name, layout in LAYOUTS.items():
            with test.subTest(name):
                done = self.run(layout, program("probe"), **variables, KOLO_LOG_LEVEL="info")
                check(test, layout, done.stdout, done.stderr, [done.returncode])
                test.assertEqual(ways_of(done), {way}, done.stderr)


def ways_of(done):
    """What the ranks say that they take, without the reasons."""
    return set(re.findall(r"rendezvous: (\w+)", done.stderr))
