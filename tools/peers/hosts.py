"""Hosts made of network namespaces with shaped links, for tools/bench hosts and scaling: each its own
network stack and host identity, joined by a bridge. What they share is the processor, and files."""
import contextlib
import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import tempfile

from peers.arguments import bytes_per_second

# What a TCP connection gets of a link: a frame of 1514 bytes carries 1448 (RFC 9293's header with
# timestamps, IPv4, Ethernet).
PAYLOAD = 1448 / 1514
PORT = 29517
NOT_POSSIBLE = 77  # what CTest takes for "not run"


class NotPossible(Exception):
    """Why this machine makes no hosts."""


def call(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise NotPossible(f"{' '.join(command)}: {lines[-1] if lines else done.returncode}")


class Hosts:
    """As many hosts, at 10.213.0.(1 + number); gone when the `with` ends, with all their processes."""

    def __init__(self, number, rate):
        self.number, self.rate = number, rate
        mark = secrets.token_hex(2)
        self.switch = f"kolo{mark}sw"
        self.names = [f"kolo{mark}h{i}" for i in range(number)]

    def __enter__(self):
        if os.geteuid() != 0:
            raise NotPossible("network namespaces need root")
        try:
            call("ip", "netns", "add", self.switch)
            call("ip", "-n", self.switch, "link", "add", "name", "switch0", "type",
                 "bridge")
            call("ip", "-n", self.switch, "link", "set", "switch0", "up")
            for i, name in enumerate(self.names):
                call("ip", "netns", "add", name)
                call("ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name",
                     f"port{i}", "netns", self.switch)
                call("ip", "-n", self.switch, "link", "set", f"port{i}", "master",
                     "switch0", "up")
                call("ip", "-n", name, "addr", "add", f"10.213.0.{i + 1}/24", "dev", "eth0")
                call("ip", "-n", name, "link", "set", "lo", "up")
                call("ip", "-n", name, "link", "set", "eth0", "up")
                if self.rate != "none":
                    # Bursts of a whole offloaded frame, or the filter cuts each into pieces.
                    shape = ["root", "tbf", "rate", self.rate, "burst", "128kb", "limit", "1mb"]
                    call("tc", "-n", name, "qdisc", "add", "dev", "eth0", *shape)
                    call("tc", "-n", self.switch, "qdisc", "add", "dev", f"port{i}", *shape)
        except FileNotFoundError as error:
            raise NotPossible(f"no {error.filename}: Debian's iproute2 has it") from error
        except BaseException:  # an end by a signal, too
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        try:
            # A signal meanwhile, which would leave what is left, waits.
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
        finally:  # even where one has come just before
            try:
                self.remove()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def remove(self):
        for name in [*self.names, self.switch]:
            # What mpirun has started is nobody's here.
            left = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout
            for process in left.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


class BusyLoops:
    """Other programs that want the cores: so many on each, until the `with` ends."""

    def __init__(self, loops_a_core):
        self.cores = sorted(os.sched_getaffinity(0)) * loops_a_core
        self.processes = []

    def __enter__(self):
        for core in self.cores:
            self.processes.append(subprocess.Popen(
                [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, [{core}])\nwhile True: pass"]))

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


def run(perf, ranks, per_host, rate, arguments, timeout, cyclic=False, good=(0,), out=subprocess.DEVNULL):
    """kolo-perf's report of so many ranks a host, side by side or dealt out. CalledProcessError where a
    rank fails."""
    # Ranks of one host have shared memory, which UCX does not take between hosts: it reports no
    # lost peer.
    transports = "tcp,self" if per_host == 1 else "tcp,self,posix,cma"
    with Hosts(number_of_hosts(ranks, per_host), rate) as hosts, tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        processes = []
        try:
            for rank in range(ranks):
                name = hosts.names[rank % hosts.number if cyclic else rank // per_host]
                environment = {**os.environ, "KOLO_INIT_METHOD": f"tcp://10.213.0.1:{PORT}",
                               "KOLO_RANK": str(rank), "KOLO_SIZE": str(ranks),
                               "KOLO_HOST_ID": name, "UCX_TLS": transports, "KOLO_LINK_CACHE": "0",
                               "UCX_NET_DEVICES": "eth0"}
                command = ["ip", "netns", "exec", name, perf, *arguments]
                if rank == 0:
                    command += ["-J", str(report)]
                processes.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                                                  stdout=out))
            codes = [process.wait(timeout) for process in processes]
        finally:
            for process in processes:
                process.kill()
        for process, code in zip(processes, codes):
            if code not in good:
                raise subprocess.CalledProcessError(code, process.args)
        return json.loads(report.read_text())


# How mpirun reaches a host: by its address, as ssh would, but into its namespace. Each has a name of
# its own, or MPI would take all for one, and cores of its own, where there are enough.
AGENT = """#!/bin/sh
case $1 in {cases} esac
shift
export KOLO_HOST_ID=$name UCX_TLS={transports} UCX_NET_DEVICES=eth0 KOLO_LINK_CACHE=0
exec taskset -c $cores ip netns exec $name unshare --uts sh -c "hostname $name && $*"
"""


def run_beside_mpi(perf, ranks, per_host, rate, arguments, timeout, cyclic=False):
    """As run(), started by Open MPI's mpirun and beside its collectives over TCP."""
    number = number_of_hosts(ranks, per_host)
    transports = "tcp,self" if per_host == 1 else "tcp,self,posix,cma"
    with Hosts(number, rate) as hosts, tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        agent = pathlib.Path(folder) / "agent"
        addresses = [f"10.213.0.{i + 1}" for i in range(number)]
        cores = sorted(os.sched_getaffinity(0))
        has_own = ranks <= len(cores)
        cases = " ".join(
            f"{address}) name={name} "
            f"cores={','.join(map(str, cores[i * per_host:(i + 1) * per_host] if has_own else cores))};;"
            for i, (address, name) in enumerate(zip(addresses, hosts.names)))
        agent.write_text(AGENT.format(cases=cases, transports=transports))
        agent.chmod(0o755)
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        settings = {"plm_rsh_agent": agent, "pml": "ob1", "btl": "tcp,self,vader",
                    "btl_tcp_if_include": "eth0", "oob_tcp_if_include": "eth0",
                    # All hosts share this machine's cores.
                    "mpi_yield_when_idle": int(not has_own)}
        command = [str(agent), addresses[0], "mpirun", "-np", str(ranks), "--bind-to", "none",
                   "--map-by", "node" if cyclic else "slot",
                   "--host", ",".join(f"{address}:{per_host}" for address in addresses),
                   *(str(word) for name, value in settings.items() for word in ("--mca", name, value)),
                   str(perf), *arguments, "--compare", "mpi", "-J", str(report)]
        subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       timeout=timeout, check=True)
        return json.loads(report.read_text())


def number_of_hosts(ranks, per_host):
    return -(-ranks // per_host)


# What a host must send or receive, of kolo-perf's size, where all have as many ranks.
LEAST_TRAFFIC = {
    "allreduce": lambda hosts: 2 * (hosts - 1) / hosts,
    "allgather": lambda hosts: (hosts - 1) / hosts,
    "reducescatter": lambda hosts: (hosts - 1) / hosts,
    "broadcast": lambda hosts: 1,
}


def share_of_payload(row, hosts, rate):
    """How much of what the link carries the collective's least traffic took."""
    share = LEAST_TRAFFIC[row["collective"]](hosts)
    least = share * row["size"] / (bytes_per_second(rate) * PAYLOAD)
    return least / (result_of(row)["time_us"] / 1e6)


def result_of(row):
    """In place, where the collective is measured so."""
    return max(row["results"], key=lambda result: result["in_place"])


def line_of(entry):
    """An entry of the table, as it is printed."""
    line = (f"{entry['ranks']:3} ranks on {entry['hosts']} hosts {entry['size']:>12} B "
            f"{entry['time_us']:>14.1f} us")
    if "share_of_payload" in entry:
        line += f" {100 * entry['share_of_payload']:6.1f} % of the payload limit"
    if "busy" in entry:
        line += f"  {entry['busy']['times_idle']:.2f} times as long with other programs"
    if "predicted_us" in entry:
        line += (f"  predicted {entry['predicted_us']:.1f} us, "
                 f"{entry['predicted_us'] / entry['time_us']:.2f} of it")
    for peer, ratio in entry["beside"].items():
        line += f"  {ratio['median']:.2f} of {peer} ({ratio['p10']:.2f} to {ratio['p90']:.2f})"
    return line


def predicted_us(simulate, report, per_host, size, collective, algorithm):
    """What kolo-simulate says of a collective by the links of the report. Messages have no overhead: the
    time of a round in which all ranks send at once stands for it, too."""
    command = [str(simulate), collective, "--hosts", str(report["hosts"]), "--ranks-per-host", str(per_host),
               "-b", str(size), "-e", str(size), "--json"]
    for prefix, link in (("", report["across"]), ("inside-", report["inside"])):
        if link is not None:
            command += [f"--{prefix}latency", f"{report['ranks'] * link['crowd_us']}us", f"--{prefix}overhead",
                        "0us", f"--{prefix}bandwidth", str(link["GBps"])]
    if algorithm:
        command += ["--algorithm", algorithm]
    rows = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["rows"]
    return next(row["time_us"] for row in rows if algorithm or row["chosen"])


def measure(options, perf):
    """What tools/bench hosts prints; its exit status."""
    table = []
    for ranks in options.ranks:
        hosts = number_of_hosts(ranks, options.per_host)
        what = ["--audit", "--within", str(options.audit)] if options.audit else [options.collective]
        arguments = [*what, "-b", options.minbytes, "-e", options.maxbytes, "-f", options.stepfactor,
                     "-n", str(options.iters), "-w", "2"]
        try:
            start = run_beside_mpi if options.compare else run
            where = (str(perf), ranks, options.per_host, options.rate, arguments, options.timeout,
                     options.cyclic)
            if options.audit:
                if not options.json:
                    print(f"{ranks} ranks on {hosts} hosts", flush=True)
                table.append(run(*where, good=(0, 1), out=subprocess.DEVNULL if options.json else None))
                continue
            report = start(*where)
            if options.busy:
                with BusyLoops(options.busy):
                    busy = start(*where)
        except NotPossible as reason:
            print(f"not run: {reason}", file=sys.stderr)
            return NOT_POSSIBLE
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            print(f"{ranks} ranks on {hosts} hosts: {error}", file=sys.stderr)
            return 1
        for index, row in enumerate(report["rows"]):
            result = result_of(row)
            entry = {"collective": options.collective, "ranks": ranks, "hosts": hosts, "rate": options.rate, "size": row["size"],
                     "time_us": result["time_us"], "wrong": result["wrong"]}
            if options.rate != "none":
                entry["share_of_payload"] = share_of_payload(row, hosts, options.rate)
            if options.busy:
                time_us = result_of(busy["rows"][index])["time_us"]
                entry["busy"] = {"loops_a_core": options.busy, "time_us": time_us,
                                 "times_idle": time_us / result["time_us"]}
            if options.predict:
                entry["predicted_us"] = predicted_us(options.simulate, report, options.per_host, row["size"],
                                                     options.collective, os.environ.get("KOLO_ALGORITHM"))
            entry["beside"] = {ratio["peer"]: {key: ratio[key] for key in ("median", "p10", "p90")}
                               for ratio in row.get("ratios", [])
                               if ratio["in_place"] == result["in_place"]}
            table.append(entry)
            if not options.json:
                print(line_of(entry), flush=True)
    if options.json:
        print(json.dumps(table, indent=1))
    if options.audit:
        return 1 if any(row["fails"] or row["wrong"] for report in table for row in report["audit"]) else 0
    return 1 if any(entry["wrong"] for entry in table) else 0
