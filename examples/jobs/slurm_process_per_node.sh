#!/bin/bash
# Slurm: one process on each node, which drives that node's devices itself.
#SBATCH --job-name=kolo
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=01:00:00
# with GPUs: #SBATCH --gpus-per-node=8
set -euo pipefail

results=results/$SLURM_JOB_ID
mkdir -p "$results"
# All cores of the node are this one process's.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-${SLURM_CPUS_ON_NODE:-1}}
srun --kill-on-bad-exit=1 --ntasks-per-node=1 "${PROGRAM:-./trainer}" "$@" 2>&1 | tee "$results/log"
