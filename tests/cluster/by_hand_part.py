"""Ranks started one by one on hosts: RANK and WORLD_SIZE, InitOptions with tcp://, a file; and what
ends in one line that says what to do."""
import time
import unittest

from ways import LAYOUTS, by_hand, check, folder, program


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

    def test_a_rank_that_never_comes(self):
        layout = [0, 1]
        variables = torch_variables([0, 1, 2])
        codes, _, errors = by_hand(layout, lambda rank: [program("probe")],
                                   lambda rank: variables(rank) | {"KOLO_INIT_TIMEOUT": "2"})
        self.assertEqual(codes, [3, 3])
        self.assertRegex(errors, r"1 of 3 ranks did not reach phase 'handshake' .*: 2;")
