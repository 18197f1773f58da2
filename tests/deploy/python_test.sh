#!/usr/bin/env bash
# Runs the Python test that is named, with the packages that it needs.
set -euo pipefail
export PYTHONPATH=../deploy_tools/site PYTHONDONTWRITEBYTECODE=1
exec python3 "$@"
