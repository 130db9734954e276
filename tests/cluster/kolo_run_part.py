"""kolo-run from the first host, the others by ssh."""
import os
import subprocess
import tempfile
import unittest

import services
from ways import LAYOUTS, check, program, run

SSH = []


def prepare(cluster):
    SSH.extend(services.start_ssh(cluster))


def kolo_run(*arguments, **variables):
    return run(program("kolo_run"), "--agent", " ".join(SSH), *arguments, **variables)


def hosts_of(layout):
    return ",".join(f"kolohost{host}:{layout.count(host)}" for host in dict.fromkeys(layout))


class Table(unittest.TestCase):
    def test_ssh(self):
        for name, layout in LAYOUTS.items():
            with self.subTest(name):
                by = "slot" if layout == sorted(layout) else "node"
                done = kolo_run("-H", hosts_of(layout), "--map-by", by, program("probe"))
                check(self, layout, done.stdout, done.stderr, [done.returncode])

    def test_more_ranks_on_a_host_than_may_log_in_at_once(self):
        done = kolo_run("-H", "kolohost0:1,kolohost1:24", "sh", "-c", "echo $RANK")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(sorted(map(int, done.stdout.split())), list(range(25)), done)

    def test_by_one_network(self):
        done = kolo_run("-H", "kolohost0:2,kolohost1:1", "--interface", "eth0", program("probe"))
        check(self, [0, 0, 1], done.stdout, done.stderr, [done.returncode])
        done = kolo_run("-np", "2", "-x", "KOLO_INTERFACE=eth7", program("probe"))
        self.assertEqual(done.returncode, 3)
        self.assertIn("KOLO_INTERFACE=eth7: this host has no such network device", done.stderr)


class Binding(unittest.TestCase):
    def test_ranks_of_every_host_have_cores_of_their_own(self):
        cores = sorted(os.sched_getaffinity(0))
        done = kolo_run("-H", f"kolohost0:{len(cores)},kolohost1:{len(cores)}", "sh", "-c",
                        'echo "$(uname -n) $(taskset -cp $$)"')
        self.assertEqual(done.returncode, 0, done)
        found = sorted((line.split()[0], line.split()[-1]) for line in done.stdout.splitlines())
        self.assertEqual(found, sorted((host, str(core)) for host in ("kolohost0", "kolohost1")
                                       for core in cores), done)


class Ends(unittest.TestCase):
    def test_a_failure_on_another_host_ends_all(self):
        done = kolo_run("-H", "kolohost0,kolohost1,kolohost2", "sh", "-c",
                        'test "$RANK" != 2 || exit 9; exec sleep 600')
        self.assertEqual(done.returncode, 9, done)
        self.assertIn("rank 2 on kolohost2", done.stderr)

    def test_ranks_of_other_hosts_end_in_order(self):
        with tempfile.TemporaryDirectory() as folder:
            done = kolo_run("-H", "kolohost0,kolohost1", "sh", "-c",
                            f'if [ "$RANK" = 0 ]; then while [ ! -e {folder}/ready ]; do sleep 0.1; done; exit 5; fi; '
                            'trap "sleep 1; echo saved; exit 0" TERM; '
                            f'touch {folder}/ready; while :; do sleep 0.1; done')
        self.assertEqual((done.returncode, done.stdout), (5, "saved\n"), done)

    def test_what_has_a_session_of_its_own_ends_with_the_job(self):
        with tempfile.TemporaryDirectory() as folder:
            locks = [f"{folder}/{rank}" for rank in range(3)]
            done = kolo_run("-H", "kolohost0,kolohost1:2", "sh", "-c",
                            f"setsid flock {folder}/$RANK sh -c 'echo; exec sleep 600' > {folder}/$RANK.ready 2>&1 & "
                            f"until [ -s {folder}/$RANK.ready ]; do sleep .1; done")
            self.assertEqual(done.returncode, 0, done)
            for lock in locks:
                self.assertEqual(subprocess.run(["flock", "-n", lock, "true"], check=False).returncode, 0, lock)

    def test_a_host_that_is_not_there(self):
        done = kolo_run("-H", "kolohost0,kolohost9", program("probe"), KOLO_INIT_TIMEOUT="5")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("kolohost9", done.stderr)

    def test_the_environment_and_the_folder_are_those_of_the_start(self):
        done = kolo_run("-H", "kolohost1", "-x", "NOTE=it's", "sh", "-c", 'echo "$NOTE $PWD"; hostname')
        note, host = done.stdout.splitlines()
        self.assertTrue(note.startswith("it's /"), done)
        self.assertEqual(host, "kolohost1")
