#!/bin/bash
# Two nodes without a scheduler, in torchrun's manner: kolo-run on each, started by ssh. To be run on
# the first, as: ssh_two_nodes.sh node1 node2. All see the same files, and log in without a password.
set -euo pipefail

[ $# -ge 2 ] || { echo "usage: $0 FIRST_NODE SECOND_NODE [ARGUMENTS]" >&2; exit 2; }
nodes=("$1" "$2")
shift 2
results=results/$(date +%Y%m%d-%H%M%S)
mkdir -p "$results"
kolo_run=${LAUNCHER:-kolo-run}
program=${PROGRAM:-./trainer}
port=${MASTER_PORT:-29500}
read -r -a ssh <<< "${SSH:-ssh}"
# Connections of strangers are refused; both nodes read the secret.
secret=$results/secret
trap 'rm -f "$secret"' EXIT
(umask 077 && od -An -N16 -tx1 /dev/urandom | tr -d ' \n' > "$secret")

kolo_run_on() {
  printf '%q ' "$kolo_run" --nproc_per_node "${RANKS_PER_NODE:-8}" --nnodes 2 --node_rank "$1" \
    --master_addr "${nodes[0]}" --master_port "$port" --secret-file "$secret" "$program" "${@:2}"
}
# A failure on one node ends the ranks of the other: they notice that their peers are gone.
"${ssh[@]}" "${nodes[1]}" "cd $(printf %q "$PWD") && $(kolo_run_on 1 "$@")" > "$results/log.1" 2>&1 &
second=$!
status=0
eval "$(kolo_run_on 0 "$@")" 2>&1 | tee "$results/log.0" || status=$?
wait "$second" || status=$?
cat "$results/log.1"
exit "$status"
