"""What clusters have, on the hosts of hosts.py: real sshd, munged, slurmctld and slurmd, each with
settings of its own below the cluster's folder. Nothing in ~/.ssh, /etc/ssh or /etc/slurm is used."""
import os
import pathlib
import time

from hosts import find, require

SECONDS_TO_START = 30


# What PBS tells a job's script and the wrapper does not: the hosts, once for each rank.
PROLOG = """#!/bin/bash
file=/run/pbs_nodefile.$SLURM_JOB_ID
per_node=${SLURM_TASKS_PER_NODE%%[(,]*}
for host in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
  for _ in $(seq "$per_node"); do echo "$host"; done
done > "$file"
echo "export PBS_NODEFILE=$file"
"""


def write(path, text, mode=0o644):
    path = pathlib.Path(path)
    path.write_text(text, encoding="ascii")
    path.chmod(mode)
    return str(path)


def wait_for(condition, what):
    """What a daemon reaches has no event that a script could wait for."""
    end = time.monotonic() + SECONDS_TO_START
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not start within {SECONDS_TO_START} s")
        time.sleep(0.05)


def expect(done):
    if done.returncode != 0:
        raise RuntimeError(f"{done.args}: {done.stdout}{done.stderr}")


def start_ssh(cluster):
    """An sshd on every host; returns the words that take the place of `ssh`."""
    require(("sshd", "openssh-server"), ("ssh", "openssh-client"))
    folder = cluster.folder / "ssh"
    folder.mkdir(mode=0o700)
    for key in ("id", "hostkey"):
        expect(cluster.hosts[0].run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)))
    write(folder / "authorized", (folder / "id.pub").read_text(encoding="ascii"), 0o600)
    settings = write(folder / "sshd_config", f"""HostKey {folder}/hostkey
AuthorizedKeysFile {folder}/authorized
PermitRootLogin yes
PasswordAuthentication no
StrictModes no
UsePAM no
PidFile none
""")
    for host in cluster.hosts:
        expect(host.run(find("sshd"), "-f", settings, "-E", str(folder / f"{host.name}.log")))
    client = write(folder / "config", f"""Host *
  IdentityFile {folder}/id
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
  BatchMode yes
""")
    return ["ssh", "-F", client]


def start_slurm(cluster, cpus=4):
    """munged and slurmd on every host, slurmctld on the first; returns when all are idle."""
    require(("slurmctld", "slurm-wlm"), ("slurmd", "slurm-wlm"), ("srun", "slurm-wlm"), ("munged", "munge"))
    folder = cluster.folder / "slurm"
    key = os.urandom(1024).hex()
    names = ",".join(host.name for host in cluster.hosts)
    lines = f"""ClusterName=kolo
SlurmctldHost={cluster.hosts[0].name}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
SchedulerParameters=sched_interval=1,batch_sched_delay=0
NodeName={names} CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=YES State=UP
"""
    for path in sorted(pathlib.Path("/usr/lib").glob("*/slurm-wlm/spank_pbs.so")):  # of slurm-wlm-torque
        write(folder / "plugstack.conf", f"required {path}\n")
        lines += f"JobSubmitPlugins=pbs\nTaskProlog={folder}/prolog\n"
        write(folder / "prolog", PROLOG, 0o755)
    write(folder / "slurm.conf", lines)
    write(folder / "key", key, 0o600)
    (folder / "state").mkdir()
    for host in cluster.hosts:
        (folder / f"spool.{host.name}").mkdir()
        # munged wants its key and its socket's folder safe from others, as /run of a host is.
        expect(host.run("sh", "-ec", f"""cp {folder}/key /run/munge/key
chown -R munge: /run/munge
chmod 755 /run/munge
setpriv --reuid munge --regid munge --clear-groups {find('munged')} --key-file=/run/munge/key \\
  --log-file=/run/munge/log --pid-file=/run/munge/pid --seed-file=/run/munge/seed"""))
    expect(cluster.hosts[0].run(find("slurmctld")))
    for host in cluster.hosts:
        expect(host.run(find("slurmd"), "-N", host.name))

    def all_idle():
        counted = cluster.hosts[0].run("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.split()
        return counted == [str(len(cluster.hosts))]
    wait_for(all_idle, "slurm")
