#!/usr/bin/env bash
# Tries every fault of NCCL and CUDA (all_faults --help), in processes side by side, as runs
# mostly wait; adds up what they say.
set -euo pipefail
program=$1
shift
if [[ " $* " == *" --help "* ]]; then exec "$program" --help; fi
parts=12
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
running=()
for ((part = 0; part < parts; ++part)); do
  "$program" --part "$part" --parts "$parts" "$@" >"$folder/$part.out" 2>"$folder/$part.err" &
  running+=($!)
done
status=0
for ((part = 0; part < parts; ++part)); do
  wait "${running[$part]}" || status=1
  grep 'all_faults: [^0-9]' "$folder/$part.err" >&2 || true
  echo "all_faults: part $((part + 1)) of $parts has ended" >&2
done
awk '
  / ranks: / { head = $0; next }
  / faults, / { faults += $1; wrong += $3; next }
  { calls[$1] = $2; unharmed[$1] += $3; refused[$1] += $4; ended[$1] += $5; missed[$1] += $6 }
  END {
    print head
    for (name in calls) {
      printf "  %-24s %6d %6d %6d %6d %6d\n", name, calls[name], unharmed[name], refused[name], ended[name], missed[name] | "sort"
    }
    close("sort")
    print faults " faults, " wrong " of them ended as they must not"
  }' "$folder"/*.out
exit "$status"
