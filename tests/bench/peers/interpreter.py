"""Writes the path of the peers' Python interpreter to a file; installs them where missing.

usage: interpreter.py FILE
"""
import sys
from pathlib import Path

# The environment is that of `./lockstep test --peers`.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "parity" / "peers"))

from environment import peers_python  # noqa: E402

Path(sys.argv[1]).write_text(f"{peers_python()}\n")
