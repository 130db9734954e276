#!/bin/bash
# Slurm: srun starts kolo-run once on each node, in torchrun's manner; kolo-run starts the ranks.
#SBATCH --job-name=kolo
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=01:00:00
# with GPUs: #SBATCH --gpus-per-node=8
set -euo pipefail

results=results/$SLURM_JOB_ID
mkdir -p "$results"
export MASTER_ADDR MASTER_PORT RANKS_PER_NODE LAUNCHER PROGRAM
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
RANKS_PER_NODE=${RANKS_PER_NODE:-8}
LAUNCHER=${LAUNCHER:-kolo-run}
PROGRAM=${PROGRAM:-./trainer}
# Connections of strangers are refused; srun hands the secret on.
KOLO_SECRET=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export KOLO_SECRET
# shellcheck disable=SC2016  # the nodes expand it
srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 bash -c '
  exec "$LAUNCHER" --nproc_per_node "$RANKS_PER_NODE" --nnodes "$SLURM_JOB_NUM_NODES" \
    --node_rank "$SLURM_NODEID" --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" \
    "$PROGRAM" "$@"' _ "$@" 2>&1 | tee "$results/log"
