#!/usr/bin/env bash
# Runs page_test.py by Debian's Python.
set -euo pipefail
exec /usr/bin/python3 -B tests/web/page_test.py "$@"
