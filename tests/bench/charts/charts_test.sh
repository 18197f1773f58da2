#!/usr/bin/env bash
set -euo pipefail
export PYTHONPATH=../matplotlib/site PYTHONDONTWRITEBYTECODE=1
export MPLCONFIGDIR=$TEST_TMPDIR/matplotlib  # it keeps a list of fonts
exec python3 tests/bench/charts/charts_test.py
