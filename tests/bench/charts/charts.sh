#!/usr/bin/env bash
# charts.py with the packages that it needs.
set -euo pipefail
files=${RUNFILES_DIR:-$0.runfiles}
export PYTHONPATH=$files/matplotlib/site PYTHONDONTWRITEBYTECODE=1
exec python3 "$files/lockstep/tests/bench/charts/charts.py" "$@"
