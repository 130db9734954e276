"""Several hosts on one machine, for the tests of this folder: each has its own network, name, process
numbers, /proc, /sys, /run, /dev/shm, boot id and IPC, made of namespaces and joined by a bridge. What
they share is the processor and the other files, as over NFS. They end with the process that made them,
even if it is killed: nothing is left behind but what it kept in its folder."""
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from wheel import NotPossible  # noqa: E402

PREFIX = "kolohost"
PR_SET_PDEATHSIG = 1

# Run as the first process of a host; $1 is the folder that the hosts share, $2 its name.
SETUP = """
set -e
hostname "$2"
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/cgroup
mount --rbind /sys/fs/cgroup /run/cgroup
mount -t sysfs sysfs /sys  # of this network; slurmd wants the machine's cgroups below it
mount --move /run/cgroup /sys/fs/cgroup
mount -t tmpfs -o size=1g tmpfs /dev/shm
mkdir -p /run/munge /run/sshd
mount --bind "$1/hosts" /etc/hosts
mount --bind "$1/$2.boot_id" /proc/sys/kernel/random/boot_id
[ ! -d /etc/slurm ] || mount --bind "$1/slurm" /etc/slurm
ip link set lo up
echo ready
exec sleep infinity
"""


def require(*programs):
    """Each is (program, Debian package)."""
    lacking = [package for program, package in programs if not find(program)]
    if lacking:
        raise NotPossible(f"no {', '.join(lacking)}: apt-get install {' '.join(sorted(set(lacking)))}")


def find(program):
    return shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin")


def require_peer(peers, name):
    """The folder of another MPI, which tools/bench has installed."""
    prefix = pathlib.Path(peers or "build/peers").absolute() / name
    if not (prefix / "bin" / "mpirun").exists():
        raise NotPossible(f"no {prefix}/bin/mpirun: tools/bench peers --only {name} installs it")
    return prefix


def end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def call(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise NotPossible(f"{' '.join(command[:4])} …: {lines[-1] if lines else done.returncode}")


class Host:
    def __init__(self, name, address, holder):
        self.name, self.address, self.holder = name, address, holder
        children = f"/proc/{holder.pid}/task/{holder.pid}/children"
        self.first = int(pathlib.Path(children).read_text(encoding="ascii").split()[0])

    def command(self, *arguments):
        """What runs a command on this host, in the caller's directory and environment."""
        return ["nsenter", "-t", str(self.first), "-n", "-u", "-i", "-m", "-p",
                f"--wdns={os.getcwd()}", "--", *arguments]

    def run(self, *arguments, **options):
        settings = {"capture_output": True, "text": True, "check": False, "timeout": 60,
                    "stdin": subprocess.DEVNULL} | options
        return subprocess.run(self.command(*arguments), **settings)

    def start(self, *arguments, **options):
        return subprocess.Popen(self.command(*arguments), **options)


class Cluster:
    """`number` hosts kolohost0…, at 10.214.0.1…; `rate` shapes their links as tc writes it (1gbit)."""

    def __init__(self, number, folder, rate=None):
        self.folder = pathlib.Path(folder)
        self.hosts, self.processes = [], []
        if os.geteuid() != 0:
            raise NotPossible("namespaces need root")
        require(("ip", "iproute2"), ("unshare", "util-linux"), ("nsenter", "util-linux"))
        try:
            self.make(number, rate)
        except NotPossible:
            self.close()
            raise

    def make(self, number, rate):
        (self.folder / "slurm").mkdir()
        names = [f"{PREFIX}{i}" for i in range(number)]
        lines = ["127.0.0.1 localhost"] + [f"10.214.0.{i + 1} {name}" for i, name in enumerate(names)]
        (self.folder / "hosts").write_text("\n".join(lines) + "\n", encoding="ascii")
        switch = self.hold("unshare", "-n", "sh", "-c", "echo ready; exec sleep infinity")
        self.on_switch = on_switch = ["nsenter", "-t", str(switch.pid), "-n", "--"]
        call(*on_switch, "ip", "link", "add", "name", "switch", "type", "bridge")
        call(*on_switch, "ip", "link", "set", "switch", "up")
        for i, name in enumerate(names):
            (self.folder / f"{name}.boot_id").write_text(f"{uuid.uuid4()}\n", encoding="ascii")
            holder = self.hold("unshare", "-n", "-u", "-i", "-m", "-p", "--fork", "--mount-proc",
                               "--kill-child", "--propagation", "private", "--", "bash", "-c", SETUP,
                               "_", str(self.folder), name)
            host = Host(name, f"10.214.0.{i + 1}", holder)
            self.hosts.append(host)
            call(*on_switch, "ip", "link", "add", f"port{i}", "type", "veth", "peer", "name", "eth0",
                 "netns", str(host.first))
            call(*on_switch, "ip", "link", "set", f"port{i}", "master", "switch", "up")
            call(*host.command("ip", "addr", "add", f"{host.address}/24", "dev", "eth0"))
            call(*host.command("ip", "link", "set", "eth0", "up"))
            if rate:
                # Bursts of a whole offloaded frame, or the filter cuts each into pieces.
                shape = ["root", "tbf", "rate", rate, "burst", "128kb", "limit", "1mb"]
                call(*host.command("tc", "qdisc", "add", "dev", "eth0", *shape))
                call(*on_switch, "tc", "qdisc", "add", "dev", f"port{i}", *shape)

    def cut(self, number):
        """The host's network carries nothing any more, until mend()."""
        call(*self.on_switch, "ip", "link", "set", f"port{number}", "down")

    def mend(self, number):
        call(*self.on_switch, "ip", "link", "set", f"port{number}", "up")

    def hold(self, *command):
        """A process that keeps namespaces alive; returns when it has made them."""
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, preexec_fn=end_with_parent)
        self.processes.append(process)
        if process.stdout.readline() != "ready\n":
            raise NotPossible(f"no namespaces: {process.stderr.read().strip()}")
        return process

    def close(self):
        for process in self.processes:
            process.kill()  # with it go its namespaces and all that runs there
        for process in self.processes:
            process.communicate()
