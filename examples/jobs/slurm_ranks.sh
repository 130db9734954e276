#!/bin/bash
# Slurm: srun starts each rank.
#SBATCH --job-name=kolo
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --time=01:00:00
# with GPUs: #SBATCH --gpus-per-node=8
set -euo pipefail

results=results/$SLURM_JOB_ID
mkdir -p "$results"
srun --kill-on-bad-exit=1 "${PROGRAM:-./trainer}" "$@" 2>&1 | tee "$results/log"
