"""Tests of kolo_run_test: what is mistyped, missing or not what it should be."""
import os
import pathlib
import tempfile
import unittest

from launching import kolo_run


class Mistakes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, name, text, mode=0o644):
        path = pathlib.Path(self.folder, name)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        return str(path)

    def expect_refused(self, words, *arguments):
        done = kolo_run(*arguments)
        self.assertEqual(done.returncode, 2, done)
        self.assertIn(words, done.stderr)

    def test_nothing_to_run(self):
        for arguments in ([], ["-np", "2"], ["--"]):
            self.expect_refused("kolo-run: a program to run is required\nkolo-run --help says what it takes\n", *arguments)

    def test_host_files(self):
        for text, words in (("a\n\nb c\n", "line 3 of the host file, 'b c', is wrong at 'c': expected a host and"),
                            ("a slots = 2\n", "'a slots = 2', is wrong at 'slots'"),
                            ("a slots=2 cores\n", "is wrong at 'cores'"), ("a slots=x\n", "'a:x' is no host"),
                            ("a slots=0\n", "'a:0' is no host"), ("a,b\n", "'a,b' is no host"),
                            ("# a\n", "names no host")):
            self.expect_refused(words, "--hostfile", self.file("hosts", text), "--dry-run", "p")
        self.expect_refused(f"cannot read {self.folder}: Is a directory", "--hostfile", self.folder, "p")
        self.expect_refused("cannot read /nosuch: No such file", "--hostfile", "/nosuch", "p")
        path = self.file("hosts", "\ufefflocalhost slots=2 max_slots=4\r\n")
        done = kolo_run("--machinefile", path, "sh", "-c", "echo $RANK")
        self.assertEqual((sorted(done.stdout.split()), done.stderr), (["0", "1"], ""), done)

    def test_lists_of_hosts(self):
        done = kolo_run("-H", " localhost:1, localhost:2 ", "sh", "-c", "echo $RANK")
        self.assertEqual((sorted(done.stdout.split()), done.stderr), (["0", "1", "2"], ""), done)
        self.expect_refused("--host '' names no host", "-np", "1", "-H", "", "true")
        self.expect_refused("--hostfile '' names no host", "-np", "1", "--hostfile", "", "true")
        self.expect_refused("'a/b' is no host", "-H", "a/b", "true")

    def test_long_options_with_one_hyphen(self):
        for arguments in (["-host", "localhost:2"], ["-hosts=localhost:2"], ["-timeout", "60", "-np", "2"]):
            done = kolo_run(*arguments, "sh", "-c", "echo $0", "-host")
            self.assertEqual((done.returncode, done.stdout), (0, "-host\n" * 2), done)
        self.assertRegex(kolo_run("--version").stdout, r"^kolo \d+\.\d+\.\d+\n$")

    def test_folders_where_files_belong(self):
        self.expect_refused(f"cannot read {self.folder}: Is a directory", "--config", self.folder, "true")
        self.expect_refused(f"cannot run '{self.folder}': Is a directory", "-np", "1", self.folder)

    def test_programs_that_cannot_run(self):
        plain = self.file("train.py", "print()\n")
        self.expect_refused(f"Permission denied; chmod +x {plain}", "-np", "1", plain)
        lost = self.file("lost", "#!/nosuch/python\n", 0o755)
        self.expect_refused("it is there, but not its interpreter", "-np", "1", lost)
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        os.chdir(self.folder)
        self.expect_refused("No such file or directory in PATH; for the one in this folder give ./lost", "-np", "1", "lost")
        self.expect_refused("variables of the ranks are set by -x A=1", "-np", "1", "A=1", "true")

    def test_inside_of_another_launcher(self):
        step = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}
        for variables, words in (({"OMPI_COMM_WORLD_SIZE": "2"}, "one of 2 that Open MPI's mpirun has started"),
                                 ({"PMI_SIZE": "3"}, "if separate jobs are meant: env -u PMI_SIZE kolo-run"),
                                 (step, "one of 2 that a Slurm step has started (SLURM_STEP_NUM_TASKS=2)")):
            done = kolo_run("-np", "2", "true", **variables)
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(words, done.stderr)
        for variables in ({"OMPI_COMM_WORLD_SIZE": "1"}, {"SLURM_NTASKS": "2"}, {"WORLD_SIZE": "2"}):
            self.assertEqual(kolo_run("-np", "2", "true", **variables).returncode, 0, variables)
        node = ("--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "localhost")
        self.assertEqual(kolo_run(*node, "--dry-run", "true", **step).returncode, 0)

    def test_more_ranks_than_slurm_has_granted(self):
        shell = {"SLURM_JOB_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "1"}  # as in srun -n1 --pty bash
        done = kolo_run("-np", "2", "--dry-run", "true", **shell)
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("(SLURM_TASKS_PER_NODE=1); ask it for 2 (salloc, sbatch or srun with -n 2), or start them on "
                      "this host all the same: -H localhost:2", done.stderr)
        self.assertEqual(kolo_run("-H", "localhost:2", "true", **shell).returncode, 0)

    def test_more_ranks_than_a_system_runs(self):
        most = min(int(pathlib.Path("/proc/sys/kernel", name).read_text(encoding="ascii"))
                   for name in ("pid_max", "threads-max"))
        if most > 1 << 20:
            self.skipTest("this one runs as many as there may be ranks")
        self.expect_refused(f"{1 << 20} ranks on this host, ", "-np", str(1 << 20), "--bind", "none", "true")
        self.expect_refused("ranks on each of 1 nodes: a job has at most", "--nproc-per-node", "2000000", "true")
        self.expect_refused("'localhost:2000000' is no host", "-H", "localhost:2000000", "true")
        self.expect_refused("; start fewer ranks there", "--nproc-per-node", str(most), "true")

    def test_a_variable_that_is_not_set(self):
        done = kolo_run("-np", "1", "-x", "ABSENT", "-x", "SET", "true", SET="1")
        self.assertEqual((done.returncode, done.stderr),
                         (0, "kolo-run: -x ABSENT: it is not set here, so no rank gets it\n"))
