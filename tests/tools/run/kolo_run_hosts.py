"""Tests of kolo_run_test: what names of hosts mean."""
import pathlib
import re
import subprocess
import tempfile
import unittest

from launching import LIMIT, PROGRAMS, clean


class Names(unittest.TestCase):
    """In a mount namespace with names of its own, on a host that is called node1."""

    def dry_run(self, names, *hosts):
        apart = ["unshare", "--map-root-user", "--mount", "--uts"]
        if subprocess.run([*apart, "hostname", "node1"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no namespaces here")
        with tempfile.TemporaryDirectory() as folder:
            table = pathlib.Path(folder, "hosts")
            table.write_text("127.0.0.1 localhost\n" + names, encoding="ascii")
            switch = pathlib.Path(folder, "nsswitch.conf")
            switch.write_text("hosts: files\n", encoding="ascii")
            script = (f"mount --bind {table} /etc/hosts; mount --bind {switch} /etc/nsswitch.conf; hostname node1; "
                      'exec "$@"')
            return subprocess.run([*apart, "sh", "-c", script, "sh", PROGRAMS["kolo_run"], *hosts, "--dry-run", "p"],
                                  capture_output=True, text=True, check=False, timeout=LIMIT, env=clean({}))

    def places(self, names, *hosts):
        done = self.dry_run(names, *hosts)
        self.assertEqual(done.returncode, 0, done)
        found = []
        for line in done.stdout.splitlines()[:-1]:
            place, _, rest = line.partition(": ")
            local = re.search(" LOCAL_RANK=(.*) LOCAL_WORLD_SIZE=(.*) MASTER_ADDR", rest)
            found.append(f"{place.partition(' on ')[2]} {local[1]}/{local[2]}")
        return found, done.stderr

    def test_two_names_of_one_host(self):
        names = "10.9.0.2 a\n10.9.0.2 a2\n10.9.0.3 b\n"
        found, errors = self.places(names, "-H", "a,b,a2:2,c,user@a")
        self.assertEqual(found, ["a 0/3", "a 1/3", "a 2/3", "b 0/1", "c 0/1", "user@a 0/1"])
        self.assertEqual(errors, "kolo-run: a2 is a (10.9.0.2): one host, whose slots add up\n")
        # A name server that knows every name tells nothing.
        found, errors = self.places("10.9.0.2 a b kolo-run-asks-for-no-host\n", "-H", "a,b")
        self.assertEqual((found, errors), (["a 0/1", "b 0/1"], ""))

    def test_names_of_this_host(self):
        found, errors = self.places("127.0.1.1 node1.own login\n", "-H", "localhost,login:2")
        self.assertEqual(found, ["localhost 0/3", "localhost 1/3", "localhost 2/3"])
        self.assertEqual(errors, "kolo-run: login is localhost (this host): one host, whose slots add up\n")

    def test_another_host_with_the_same_short_name(self):
        names = "127.0.1.1 node1.east\n10.9.0.2 node1.west\n"
        found, errors = self.places(names, "-H", "node1.east:1,node1.west:1,node1:1")
        self.assertEqual(found, ["node1.east 0/2", "node1.east 1/2", "node1.west 0/1"])
        self.assertEqual(errors.splitlines(), [
            "kolo-run: node1.west has no address of this host, node1, so it is taken for another one; localhost means "
            "this one", "kolo-run: node1 is node1.east (this host): one host, whose slots add up"])
        done = self.dry_run(names, "--launcher", "local", "-H", "node1.east,node1.west")
        self.assertIn("--launcher local starts ranks on this host alone, but node1.west is another", done.stderr)
