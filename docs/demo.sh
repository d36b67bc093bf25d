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
	for word in "$@"; do
		case $word in
		*[!A-Za-z0-9_,./=-]*) printf " '%s'" "$word" ;;
		*) printf ' %s' "$word" ;;
		esac
	done
	printf '%s\n' "$plain"
	"$binary" "$@"
}

say 'A turn. The harness runs in a sealed cell; the host calls the model and keeps the journal.'
run exec --name talk --harness chat --input 'hello, cell'

say 'A second turn of the same session.'
run exec --session talk --input 'and again'

say 'Replay: the record as it stands. No engine is started and no model is called.'
run replay --session talk

say 'A harness that holds memory: its state is saved with each turn.'
run exec --name sum --harness counter --input '3 4'

say 'Three children of that memory. Nothing is copied.'
run fork --session sum --count 3 --names red,green,blue

say 'Each goes its own way, and the parent stays as it was.'
run exec --session red --input '10'
run exec --session green --input '-10'
run exec --session sum --input 'total'

say 'Proof: run every turn again, and reach the same outputs and the same memory.'
run verify --session talk --reexecute
run verify --session green --reexecute

printf '\nThat is all. The binary is %s%s%s; try it with --help.\n' "$bold" "$binary" "$plain"
