"""Installs the peers, builds a kolo-perf for each and runs them; used by tools/bench."""
import contextlib
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys

from peers import catalogue, hosts

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Missing(Exception):
    """Why a peer was not measured."""


def end(process):
    """With time for mpirun to end its ranks, which nobody else does."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        try:
            process.wait(10)
        finally:
            process.kill()


def call(command, log, timeout=None, **options):
    """Runs a command with its output at the end of a file; Missing with its last line if it fails."""
    with open(log, "a") as out, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out,
                                                 stderr=subprocess.STDOUT, **options) as process:
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            end(process)
            code = "timeout"
        except BaseException:  # an end by a signal, too
            end(process)
            raise
    if code != 0:
        lines = [line for line in pathlib.Path(log).read_text(errors="replace").splitlines()
                 if re.search(r"[A-Za-z]", line)]
        raise Missing(f"{pathlib.Path(command[0]).name}: {code}; {lines[-1] if lines else ''} ({log})")


def install(peer, cache):
    """The prefix of the installation. Wheels are unpacked below the cache, once."""
    if peer.prefix:
        header = "gloo/config.h" if peer.engine == "gloo" else "mpi.h"
        if not (pathlib.Path(peer.prefix) / "include" / header).exists():
            raise Missing(f"Debian's package is not installed: no include/{header} in {peer.prefix}")
        return peer.prefix
    prefix = cache / peer.install
    stamp = prefix / "installed"
    wanted = json.dumps(peer.wheels)
    if stamp.exists() and stamp.read_text() == wanted:
        return str(prefix)
    shutil.rmtree(prefix, ignore_errors=True)
    prefix.mkdir(parents=True)
    log = cache / f"{peer.install}.log"
    venv = cache / "venv"
    if not (venv / "bin" / "pip").exists():
        call(["/usr/bin/python3", "-m", "venv", str(venv)], log)
    for wheels in peer.wheels:
        call([str(venv / "bin" / "pip"), "install", "--no-deps", "--ignore-installed", "--prefix",
              str(prefix), *wheels], log)
    stamp.write_text(wanted)
    return str(prefix)


def build(peers, prefixes, cache):
    """One build of kolo without MPI, and one kolo-perf for each installation."""
    folder = cache / "build"
    log = cache / "build.log"
    programs = {peer.install: peer for peer in peers if peer.engine != "gloo"}
    listed = ";".join(f"{name}={peer.engine}={prefixes[name]}" for name, peer in programs.items())
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    gloo = "ON" if any(peer.engine == "gloo" for peer in peers) else "OFF"
    call(["cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
          "-DKOLO_WITH_MPI=OFF", "-DKOLO_WITH_TORCH=OFF", "-DKOLO_WITH_CUDA=OFF", f"-DKOLO_WITH_GLOO={gloo}",
          "-DKOLO_BUILD_TESTS=OFF", f"-DKOLO_PERF_PEERS={listed}", *launcher], log)
    targets = ["kolo-perf", *(f"kolo-perf-{name}" for name in programs)]
    call(["cmake", "--build", str(folder), "--target", *targets], log)
    return {peer.name: folder / "tools" / "perf" /
            ("kolo-perf" if peer.engine == "gloo" else f"kolo-perf-{peer.install}") for peer in peers}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def version(peer, prefix):
    """Name and version of each wheel in the prefix, or of Debian's package."""
    if peer.prefix:
        package = "libgloo-dev" if peer.engine == "gloo" else "libopenmpi-dev"
        done = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}", package], text=True,
                              stdout=subprocess.PIPE, check=False)
        return done.stdout
    found = pathlib.Path(prefix).glob("lib/python3*/site-packages/*.dist-info")
    return ", ".join(sorted(" ".join(folder.name[:-len(".dist-info")].rsplit("-", 1)) for folder in found))


def measure(peer, prefix, program, options, out):
    """Runs kolo-perf beside the peer; its report, in the peer's name."""
    path = out / f"{peer.name}.json"
    path.unlink(missing_ok=True)
    command = [*catalogue.mpirun(peer, prefix, options.np), str(program), *options.collective,
               "-b", options.minbytes, "-e", options.maxbytes, "-f", options.stepfactor,
               "-n", str(options.iters), "-m", str(options.agg_iters), "--memory", options.memory,
               "--protocol", options.protocol,
               "--compare", peer.engine, "--limit", "-T", str(options.timeout), "-J", str(path)]
    log = out / f"{peer.name}.log"
    log.unlink(missing_ok=True)
    with hosts.BusyLoops(options.busy):
        call(command, log, timeout=options.timeout + 60,
             env=catalogue.environment(peer, prefix, options.np, free_port()))
    report = json.loads(path.read_text())
    report["peer"] = {"name": peer.name, "title": peer.title, "version": version(peer, prefix),
                      "command": command}
    for row in report["rows"]:
        for entry, key in [(r, "engine") for r in row["results"]] + [(r, "peer") for r in row["ratios"]]:
            if entry[key] == peer.engine:
                entry[key] = peer.title
    path.write_text(json.dumps(report, indent=2) + "\n")
    return report


def all_peers(names, options, cache, out):
    """Reports by name of peer, and reasons by name for those that could not be measured."""
    chosen = [peer for peer in catalogue.PEERS if not names or peer.name in names]
    cache.mkdir(parents=True, exist_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    prefixes, reasons, reports = {}, {}, {}
    for peer in chosen:
        try:
            prefixes[peer.install] = install(peer, cache)
        except Missing as reason:
            reasons[peer.name] = f"not installed: {reason}"
    chosen = [peer for peer in chosen if peer.name not in reasons]
    if not chosen:
        return reports, reasons
    try:
        programs = build(chosen, prefixes, cache)
    except Missing as reason:
        return reports, {**reasons, **{peer.name: f"not built: {reason}" for peer in chosen}}
    for peer in chosen:
        print(f"measuring {peer.title}", file=sys.stderr, flush=True)
        try:
            reports[peer.name] = measure(peer, prefixes[peer.install], programs[peer.name], options, out)
        except Missing as reason:
            reasons[peer.name] = f"not measured: {reason}"
    return reports, reasons
