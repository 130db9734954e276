#!/bin/bash
# Slurm: sbatch gives the nodes, mpirun starts the ranks on them; Open MPI asks Slurm where.
#SBATCH --job-name=kolo
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --time=01:00:00
# with GPUs: #SBATCH --gpus-per-node=8
set -euo pipefail

results=results/$SLURM_JOB_ID
mkdir -p "$results"
mpirun -np "$SLURM_NTASKS" "${PROGRAM:-./trainer}" "$@" 2>&1 | tee "$results/log"
