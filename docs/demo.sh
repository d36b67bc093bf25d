#!/usr/bin/env bash
# The main job of agentcell, from a terminal: `make demo`. It uses a directory of
# its own and removes it. Usage: docs/demo.sh path/to/agentctl
set -euo pipefail

binary=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
AGENTCTL_DATA=$(mktemp -d "${TMPDIR:-/tmp}/agentcell-demo.XXXXXX")
export AGENTCTL_DATA
trap 'rm -rf "$AGENTCTL_DATA"' EXIT

bold= dim= plain=
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
	bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'
fi
say() { printf '\n%s# %s%s\n' "$dim" "$*" "$plain"; }
run() {
	printf '%s$ agentctl' "$bold"
	printf ' %q' "$@"
	printf '%s\n' "$plain"
	"$binary" "$@"
}

say 'A turn. The harness runs in a sealed cell; the host calls the model and keeps the journal.'
run exec --name demo --harness chat --input 'hello, cell'

say 'A second turn of the same session, which remembers the first.'
run exec --session demo --input 'and again'

say 'Replay: the record as it stands. No engine is started and no model is called.'
run replay --session demo

say 'Three children of that history. Nothing is copied.'
run fork --session demo --count 3 --names red,green,blue

say 'Each goes its own way.'
run exec --session red --input 'go left'
run exec --session green --input 'go right'

say 'Proof: run every turn again, and reach the same outputs and the same memory.'
run verify --session demo --reexecute
run verify --session green --reexecute

printf '\nThat is all. The binary is %s%s%s; try it with --help.\n' "$bold" "$binary" "$plain"
