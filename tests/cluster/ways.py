"""What the parts of the cluster test have in common: the layouts, what ranks must say on each, and how
a job is started and looked at."""
import os
import pathlib
import subprocess

LIMIT = 60  # seconds for any one job

# The host of each rank.
LAYOUTS = {
    "one rank": [0],
    "two on one host": [0, 0],
    "four on one host": [0, 0, 0, 0],
    "one on each of two": [0, 1],
    "two on each of two": [0, 0, 1, 1],
    "one on each of four": [0, 1, 2, 3],
    "uneven": [0, 0, 1, 1, 2],
    "in turn": [0, 1, 0, 1],
}

SHARED = {}


def prepare(cluster, options):
    SHARED.update(cluster=cluster, **{name: os.path.abspath(value) for name, value in vars(options).items()
                                      if name in ("kolo_run", "probe", "digits", "data", "python", "peers", "worker") and value})


def cluster():
    return SHARED["cluster"]


def program(name):
    return SHARED[name]


def folder():
    """Seen by all hosts."""
    return pathlib.Path(SHARED["cluster"].folder)


def environment(**variables):
    """This one without what another launcher left in it."""
    prefixes = ("KOLO_", "OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "PBS_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return kept | {"OMP_NUM_THREADS": "1", "KOLO_INIT_TIMEOUT": "30"} | variables


def expected(layout):
    """What the probe prints on each rank, sorted."""
    lines = []
    size = len(layout)
    local_ranks = [layout[:rank].count(host) for rank, host in enumerate(layout)]
    for rank, host in enumerate(layout):
        peers = sorted({layout[r] for r in range(size) if local_ranks[r] == local_ranks[rank]},
                       key=layout.index)  # hosts are numbered by their lowest rank
        lines.append(f"rank={rank} size={size} local={local_ranks[rank]}/{layout.count(host)} "
                     f"cross={peers.index(host)}/{len(peers)} sum={size * (size + 1) // 2} "
                     f"host=kolohost{host}")
    return sorted(lines)


def check(test, layout, output, errors="", codes=(0,)):
    """The ranks' output, whatever its order."""
    test.assertEqual(set(codes), {0}, errors + output)
    test.assertEqual(sorted(line for line in output.splitlines() if line), expected(layout), errors + output)


def run(*command, host=0, **variables):
    """On one host, with its result."""
    return cluster().hosts[host].run(*command, env=environment(**variables), timeout=LIMIT)


def by_hand(layout, command_of, variables_of=lambda rank: {}):
    """A process on its host for each rank; the codes, all output, all errors."""
    started = [cluster().hosts[host].start(*command_of(rank), env=environment(**variables_of(rank)), text=True,
                                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE)
               for rank, host in enumerate(layout)]
    ended = [process.communicate(timeout=LIMIT) for process in started]
    return ([process.returncode for process in started], "".join(out for out, _ in ended),
            "".join(error for _, error in ended))
