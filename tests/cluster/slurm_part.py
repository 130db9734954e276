"""A real Slurm of four hosts: srun, sbatch, steps side by side, mpirun and kolo-run in an allocation."""
import unittest

import services
from ways import LAYOUTS, LIMIT, check, cluster, environment, folder, program, run

SSH = []


def prepare(hosts):
    SSH.extend(services.start_ssh(hosts))
    services.start_slurm(hosts)


def batch(script, *options, **variables):
    """The exit code and output of a batch job; its end is seen by the file that it writes last."""
    out, code = folder() / "batch.out", folder() / "batch.code"
    for path in (out, code):
        path.unlink(missing_ok=True)
    text = f"#!/bin/bash\n({script}\n)\necho $? > {code}.new\nmv {code}.new {code}\n"
    path = folder() / "batch.sh"
    path.write_text(text, encoding="ascii")
    done = run("sbatch", "-o", str(out), *options, str(path), **variables)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    services.wait_for(code.exists, "the batch job")
    return int(code.read_text(encoding="ascii")), out.read_text(encoding="ascii")


class Table(unittest.TestCase):
    def test_srun(self):
        for name, layout in LAYOUTS.items():
            with self.subTest(name):
                hosts = folder() / "ranks"
                hosts.write_text("".join(f"kolohost{host}\n" for host in layout), encoding="ascii")
                done = run("srun", "-n", str(len(layout)), "-m", "arbitrary", program("probe"),
                           SLURM_HOSTFILE=str(hosts))
                check(self, layout, done.stdout, done.stderr, [done.returncode])

    def test_srun_by_blocks_and_in_turn(self):
        for layout, way in (([0, 0, 1, 1], "block"), ([0, 1, 0, 1], "cyclic")):
            done = run("srun", "-n", "4", "-N", "2", "--ntasks-per-node", "2", "-m", way, "-w",
                       "kolohost0,kolohost1", program("probe"))
            check(self, layout, done.stdout, done.stderr, [done.returncode])

    def test_srun_that_offers_pmi(self):
        done = run("srun", "--mpi=pmi2", "-n", "4", "-N", "2", "--ntasks-per-node", "2", "-w", "kolohost0,kolohost1",
                   program("probe"))
        check(self, [0, 0, 1, 1], done.stdout, done.stderr, [done.returncode])


class Batch(unittest.TestCase):
    two_by_two = ("-N", "2", "--ntasks-per-node", "2", "-w", "kolohost0,kolohost1")

    def test_a_batch_script_is_a_world_of_one(self):
        code, out = batch(program("probe"), *self.two_by_two)
        check(self, [0], out, codes=[code])

    def test_srun_in_it(self):
        code, out = batch(f"srun {program('probe')}", *self.two_by_two)
        check(self, [0, 0, 1, 1], out, codes=[code])

    def test_two_steps_side_by_side(self):
        step = f"srun --exact -N 2 -n 2 {program('probe')}"
        code, out = batch(f"{step} & one=$!; {step} && wait $one", *self.two_by_two)
        self.assertEqual(code, 0, out)
        for rank, host in ((0, 0), (1, 1)):
            self.assertEqual(out.count(f"rank={rank} size=2 local=0/1 cross={host}/2 sum=3 "
                                       f"host=kolohost{host}\n"), 2, out)

    def test_mpirun_in_it(self):
        code, out = batch(f"mpirun.openmpi --allow-run-as-root {program('probe')}", *self.two_by_two,
                          OMPI_MCA_btl="^openib", OMPI_MCA_mpi_yield_when_idle="1",
                          OMPI_MCA_oob_tcp_if_include="eth0", OMPI_MCA_btl_tcp_if_include="eth0",
                          OMPI_MCA_btl_base_warn_component_unused="0")
        check(self, [0, 0, 1, 1], out, codes=[code])

    @unittest.skipUnless(services.find("mpirun.mpich"), "no mpirun.mpich: apt-get install mpich")
    def test_mpichs_mpirun_in_it(self):
        code, out = batch(f"mpirun.mpich -iface eth0 {program('probe')}", *self.two_by_two)
        check(self, [0, 0, 1, 1], out, codes=[code])

    def test_kolo_run_in_it(self):
        for launcher in ("--launcher srun", f"--agent '{' '.join(SSH)}'"):
            code, out = batch(f"{program('kolo_run')} {launcher} {program('probe')}", *self.two_by_two)
            check(self, [0, 0, 1, 1], out, codes=[code])

    def test_kolo_run_places_as_it_was_asked(self):
        for hosts, layout in (("kolohost1:1,kolohost0:2", [1, 0, 0]), ("kolohost0:1,kolohost1:2", [0, 1, 1]),
                              ("kolohost1:2,kolohost0:2", [1, 1, 0, 0])):
            with self.subTest(hosts):
                code, out = batch(f"{program('kolo_run')} --launcher srun -H {hosts} {program('probe')}",
                                  *self.two_by_two)
                check(self, layout, out, codes=[code])

    def test_kolo_run_ends_in_time(self):
        code, out = batch(f"{program('kolo_run')} --launcher srun --timeout 2 sleep 100", *self.two_by_two)
        self.assertEqual(code, 124, out)

    def test_kolo_run_on_each_node(self):
        line = (f"srun -N 2 -n 2 --ntasks-per-node=1 sh -c '{program('kolo_run')} --nproc_per_node 2 --nnodes 2 "
                f"--node_rank $SLURM_NODEID --master_addr kolohost0 {program('probe')}'")
        code, out = batch(line, *self.two_by_two, KOLO_SECRET="of the job")
        check(self, [0, 0, 1, 1], out, codes=[code])

    def test_the_exit_code_of_a_rank_is_the_jobs(self):
        code, _ = batch("srun sh -c 'test $SLURM_PROCID != 1 || exit 6'", *self.two_by_two)
        self.assertEqual(code, 6)


class Qsub(unittest.TestCase):
    @unittest.skipUnless(services.find("qsub"), "no qsub: apt-get install slurm-wlm-torque")
    def test_a_pbs_script(self):
        out = folder() / "pbs.out"
        script = folder() / "job.pbs"
        script.write_text(f"#!/bin/bash\n#PBS -l nodes=2:ppn=1\n#PBS -j oe\n"
                          f"srun {program('probe')}; echo ended\n", encoding="ascii")
        done = cluster().hosts[0].run("qsub", "-o", str(out), "-e", f"{out}.errors", str(script), env=environment(), timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done)
        services.wait_for(lambda: out.exists() and out.read_text(encoding="ascii").endswith("ended\n"), "qsub's job")
        text = out.read_text(encoding="ascii")
        self.assertIn("rank=1 size=2 local=0/1 cross=1/2 sum=3", text)
