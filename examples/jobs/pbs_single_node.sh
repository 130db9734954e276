#!/bin/bash
# PBS, one node: a rank for each of its 8 devices.
#PBS -N kolo
#PBS -q workq
#PBS -A my_project
#PBS -l select=1
#PBS -l walltime=01:00:00
#PBS -j oe
set -euo pipefail

cd "$PBS_O_WORKDIR"
results=results/$PBS_JOBID
mkdir -p "$results"

ranks_per_node=${RANKS_PER_NODE:-8}
# pipefail: the exit code is the trainer's, not tee's.
mpirun -np "$ranks_per_node" "${PROGRAM:-./trainer}" "$@" 2>&1 | tee "$results/log"
