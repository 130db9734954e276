"""Hosts that reach each other by IPv6 alone: ranks started by hand, and by kolo-run with ssh."""
import unittest

import services
from by_hand_part import torch_variables
from hosts import NotPossible
from ways import LAYOUTS, by_hand, check, folder, program, run

SSH = []


def address(host):
    return f"fd00:214::{host + 1:x}"


def prepare(hosts):
    for number, host in enumerate(hosts.hosts):
        for change in (["flush", "dev", "eth0"], ["add", f"{address(number)}/64", "dev", "eth0", "nodad"]):
            done = host.run("ip", "addr", *change)
            if done.returncode != 0:
                raise NotPossible(f"no IPv6 on {host.name}: {done.stderr.strip()}")
    SSH.extend(services.start_ssh(hosts))


class Table(unittest.TestCase):
    def test_by_hand(self):
        for name, layout in LAYOUTS.items():
            with self.subTest(name):
                codes, out, errors = by_hand(layout, lambda rank: [program("probe")],
                                             torch_variables(layout, address=address(0)))
                check(self, layout, out, errors, codes)

    def test_init_options(self):
        layout = LAYOUTS["two on each of two"]
        codes, out, errors = by_hand(layout, lambda rank: [program("probe"), f"tcp://[{address(0)}]:29600",
                                                           str(rank), str(len(layout))])
        check(self, layout, out, errors, codes)

    def test_kolo_run(self):
        layout = [0, 0, 1, 1, 2]
        hosts = ",".join(f"[{address(host)}]:{layout.count(host)}" for host in (0, 1, 2))
        for way in (["--interface", "eth0"], ["--address", address(0)]):
            with self.subTest(way):
                done = run(program("kolo_run"), "--agent", " ".join(SSH), "-H", hosts, *way, program("probe"))
                check(self, layout, done.stdout, done.stderr, [done.returncode])

    def test_host_file(self):
        layout = [0, 0, 1]
        hosts = folder() / "hosts_by_lines"
        hosts.write_text(f"{address(0)} slots=2\n{address(1)}\n", encoding="ascii")
        done = run(program("kolo_run"), "--agent", " ".join(SSH), "--hostfile", str(hosts), "--address", address(0),
                   program("probe"))
        check(self, layout, done.stdout, done.stderr, [done.returncode])
