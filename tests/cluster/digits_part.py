"""The digits example over several hosts: by each way in the same losses as on one rank."""
import json
import unittest

import services
from ways import by_hand, folder, program, run

SSH = []
TOLERANCE = 2e-3  # float32 sums in another order, amplified by the steps of AdamW
STEPS = 20


def prepare(cluster):
    SSH.extend(services.start_ssh(cluster))


def command(losses):
    return [program("digits"), "--data", program("data"), "--no-dropout", "--threads", "1", "--max-steps",
            str(STEPS), "--epochs", "1", "--log-losses", str(losses)]


class Losses(unittest.TestCase):
    def losses(self, name, start):
        path = folder() / name
        codes, errors = start(command(path))
        self.assertEqual(set(codes), {0}, errors)
        curve = [json.loads(line)["loss"] for line in path.read_text(encoding="ascii").splitlines()]
        self.assertEqual(len(curve), STEPS)
        return curve

    def test_each_way_has_the_losses_of_one_rank(self):
        def by_kolo_run(line):
            done = run(program("kolo_run"), "--agent", " ".join(SSH), "-H", "kolohost0:1,kolohost1:1", *line)
            return [done.returncode], done.stderr

        def by_variables(line):
            codes, _, errors = by_hand([0, 1, 0], lambda rank: line, lambda rank: {
                "RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "kolohost0", "MASTER_PORT": "29500"})
            return codes, errors

        def alone(line):
            done = run(*line)
            return [done.returncode], done.stderr

        one = self.losses("one", alone)
        for name, way in (("kolo-run", by_kolo_run), ("variables", by_variables)):
            curve = self.losses(name, way)
            worst = max(abs(a - b) / b for a, b in zip(curve, one))
            self.assertLess(worst, TOLERANCE, name)
            print(f"{name}: losses {curve[0]:.6f} to {curve[-1]:.6f}, at most {worst:.1e} from one rank's")
