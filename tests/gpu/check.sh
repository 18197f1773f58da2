#!/usr/bin/env bash
# Proves the NCCL transport on a host with GPUs, within 8 minutes: README.md, --help.
here=$(dirname "$(readlink -f "$0")")
if ! command -v python3 > /dev/null; then
  echo "check.sh needs python3, and it is not on the PATH" >&2
  exit 1
fi
exec python3 "$here/check.py" "$@"
