"""Ranks started one by one on hosts: RANK and WORLD_SIZE, InitOptions with tcp://, a file; and what
ends in one line that says what to do."""
import subprocess
import time
import unittest

import services
from ways import LAYOUTS, by_hand, check, cluster, environment, folder, program


def prepare(_):
    pass


def torch_variables(layout, address="kolohost0", port=29500):
    return lambda rank: {"RANK": str(rank), "WORLD_SIZE": str(len(layout)), "MASTER_ADDR": address,
                         "MASTER_PORT": str(port), "LOCAL_RANK": str(layout[:rank].count(layout[rank])),
                         "LOCAL_WORLD_SIZE": str(layout.count(layout[rank]))}


class Table(unittest.TestCase):
    def test_rank_and_world_size(self):
        for name, layout in LAYOUTS.items():
            with self.subTest(name):
                codes, out, errors = by_hand(layout, lambda rank: [program("probe")], torch_variables(layout))
                check(self, layout, out, errors, codes)

    def test_init_options(self):
        for name, layout in LAYOUTS.items():
            with self.subTest(name):
                codes, out, errors = by_hand(
                    layout, lambda rank, size=len(layout): [program("probe"), "tcp://10.214.0.1:29600",
                                                            str(rank), str(size)])
                check(self, layout, out, errors, codes)

    def test_a_file(self):
        for name, layout in LAYOUTS.items():
            with self.subTest(name):
                path = folder() / "meeting"
                codes, out, errors = by_hand(
                    layout, lambda rank, size=len(layout): [program("probe"), f"file://{path}",
                                                            str(rank), str(size)])
                check(self, layout, out, errors, codes)
                self.assertFalse(path.exists())


class Failures(unittest.TestCase):
    def test_an_address_that_is_each_hosts_own(self):
        layout = [0, 1]
        codes, _, errors = by_hand(layout, lambda rank: [program("probe")],
                                   torch_variables(layout, address="localhost"))
        self.assertEqual(codes, [3, 3])
        for rank in range(2):
            self.assertRegex(errors, f"rank {rank} of 2 .*localhost:29500, which is each host's own.*set "
                                     "MASTER_ADDR to a name or address of rank 0's host")

    def test_a_port_that_is_closed_to_other_hosts(self):
        # Rank 0's own address is one that no other host reaches, as in a container.
        began = time.monotonic()
        command = [program("probe"), "tcp://kolohost0:29600", "1", "2"]
        codes, _, errors = by_hand([1], lambda rank: command, lambda rank: {"KOLO_INIT_TIMEOUT": "2"})
        self.assertEqual(codes, [3])
        self.assertRegex(errors, r"nobody answers at kolohost0:29600.*\n?")
        self.assertLess(time.monotonic() - began, 30)

    def test_a_host_that_is_not_there(self):
        command = [program("probe"), "tcp://nohost:29600", "1", "2"]
        codes, _, errors = by_hand([1], lambda rank: command, lambda rank: {"KOLO_INIT_TIMEOUT": "2"})
        self.assertEqual(codes, [3])
        self.assertIn("nohost", errors)

    def test_another_secret(self):
        layout = [0, 1]
        variables = torch_variables(layout)
        codes, _, errors = by_hand(layout, lambda rank: [program("probe")], lambda rank: variables(rank) | {
            "KOLO_SECRET": f"secret {rank}", "KOLO_INIT_TIMEOUT": "4"})
        self.assertEqual(codes, [3, 3])
        self.assertRegex(errors, r"rank 1 \(pid \d+ on kolohost1\): the store knows another secret; give all "
                                 "processes of a job the same KOLO_SECRET")
        self.assertRegex(errors, "1 of 2 ranks did not reach phase 'handshake' .*: 1; see whether they started, and "
                                 r"what they wrote.*; somebody at [0-9.]+, as rank 1, came with another secret")

    def test_ranks_that_disagree_on_their_number(self):
        variables = torch_variables([0, 1])
        codes, _, errors = by_hand([0, 1], lambda rank: [program("probe")],
                                   lambda rank: variables(rank) | {"WORLD_SIZE": str(2 + rank)})
        self.assertEqual(codes, [3, 3])
        self.assertEqual(errors.count("on kolohost1) says 3, rank 0 says 2; give all ranks the same WORLD_SIZE"), 2,
                         errors)

    def test_a_port_in_use(self):
        held = cluster().hosts[0].start("python3", "-c", """
import select, socket, sys
held = socket.create_server(("0.0.0.0", 29500))
print("ready", flush=True)
while sys.stdin not in select.select([held, sys.stdin], [], [])[0]:
    held.accept()[0].close()""", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.assertEqual(held.stdout.readline(), "ready\n")
            codes, _, errors = by_hand([0, 1], lambda rank: [program("probe")], torch_variables([0, 1]))
        finally:
            held.communicate()
        self.assertEqual(codes, [3, 3])
        self.assertIn("cannot listen at kolohost0:29500: Address already in use; choose another port", errors)
        self.assertRegex(errors, "rank 1: what answers at kolohost0:29500 is no store of this kolo's version")

    def test_an_unreachable_host(self):
        codes, _, errors = by_hand([1], lambda rank: [program("probe"), "tcp://10.214.0.99:29600", "1", "2"],
                                   lambda rank: {"KOLO_INIT_TIMEOUT": "2"})
        self.assertEqual(codes, [3])
        self.assertRegex(errors, r"rank 1 \(.*\) cannot meet the others: nobody answers at 10.214.0.99:29600 "
                                 r"\(.*\); see whether rank 0 or the launcher runs there")

    def test_a_stale_file(self):
        path = folder() / "stale"
        alone = [program("probe"), f"file://{path}", "0", "2"]
        dead = cluster().hosts[0].start(*alone, env=environment())
        try:
            services.wait_for(lambda: path.exists() and path.stat().st_size > 100, "rank 0")
        finally:
            cluster().hosts[0].run("sh", "-c", "kill -9 $(pidof launch_probe)")
            dead.communicate()
        codes, _, errors = by_hand([0], lambda rank: [program("probe"), f"file://{path}", "1", "2"])
        self.assertEqual(codes, [3])
        self.assertRegex(errors, rf"{path} belongs to another meeting, which last wrote to it \d+ s ago \(rank 0 .* "
                                 r"ended .*\); remove it")
        path.unlink()

    def test_a_rank_that_never_comes(self):
        layout = [0, 1]
        variables = torch_variables([0, 1, 2])
        codes, _, errors = by_hand(layout, lambda rank: [program("probe")],
                                   lambda rank: variables(rank) | {"KOLO_INIT_TIMEOUT": "2"})
        self.assertEqual(codes, [3, 3])
        self.assertRegex(errors, r"1 of 3 ranks did not reach phase 'handshake' .*: 2;")
