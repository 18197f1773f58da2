#!/usr/bin/env bash
# Runs the lint on the whole tree: the file WORKSPACE, followed to where it is,
# tells where that is.
set -euo pipefail
here=$(dirname "$0")
python3 "$here/lint.py" --self-test
python3 "$here/lint.py" "$(dirname "$(readlink -f WORKSPACE)")"
