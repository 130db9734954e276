#!/bin/bash
# PBS, several nodes: a rank for each of the 8 devices of each. PBS says the hosts; how many ranks
# they take is said here.
#PBS -N kolo
#PBS -q workq
#PBS -A my_project
#PBS -l select=4
#PBS -l walltime=06:00:00
#PBS -j oe
set -euo pipefail

cd "$PBS_O_WORKDIR"
results=results/$PBS_JOBID
mkdir -p "$results"

ranks_per_node=${RANKS_PER_NODE:-8}
# Some sites repeat a host's line for each of its cores.
nodes=$(sort -u "$PBS_NODEFILE" | wc -l)
ranks=$((nodes * ranks_per_node))
echo "$ranks ranks on $nodes nodes" | tee "$results/log"
mpirun -np "$ranks" -map-by "ppr:$ranks_per_node:node" -hostfile "$PBS_NODEFILE" \
  "${PROGRAM:-./trainer}" "$@" 2>&1 | tee -a "$results/log"
