"""The network of a host is cut while ranks are summing: nobody closes a connection, yet all ranks end,
and say who was lost."""
import subprocess
import unittest

from by_hand_part import torch_variables
from ways import LIMIT, cluster, environment, program


def prepare(_):
    pass


class Cut(unittest.TestCase):
    def expect_lost(self, elements):
        layout = [0, 1, 2]
        variables = torch_variables(layout)
        ranks = [cluster().hosts[host].start(program("probe"), str(elements), text=True, stdin=subprocess.DEVNULL,
                                             env=environment(KOLO_HEARTBEAT_TIMEOUT="3", **variables(rank)),
                                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                 for rank, host in enumerate(layout)]
        try:
            for process in ranks:
                self.assertEqual(process.stdout.readline(), "running\n")
            cluster().cut(2)
            errors = [process.communicate(timeout=LIMIT)[1] for process in ranks]
        finally:
            cluster().mend(2)
            for process in ranks:
                process.kill()
        self.assertEqual([process.returncode for process in ranks], [3, 3, 3], errors)
        for rank, lost in ((0, "rank 2"), (1, "rank 2"), (2, "rank [01]")):
            self.assertRegex(errors[rank], rf"{lost} \(host kolohost\d, pid \d+\) is lost: nothing was heard of it for "
                                           r"\d+ s \(KOLO_HEARTBEAT_TIMEOUT\)")

    def test_small_sums(self):
        self.expect_lost(1)

    def test_bytes_under_way(self):
        self.expect_lost(4 << 20)
