"""The peers' Python environment, in the user's cache; made on first use."""
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"
WITHOUT_DEPENDENCIES = HERE / "requirements_fairscale.txt"


def _folder():
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "lockstep" / "peers" / "venv"


def _run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-20:])
        raise RuntimeError(f"the peers' set-up failed at: {' '.join(map(str, command))}\n{tail}")


def peers_python():
    """The interpreter that has the peers; installs them where they are missing."""
    folder = _folder()
    python = folder / "bin" / "python"
    wanted = REQUIREMENTS.read_text() + WITHOUT_DEPENDENCIES.read_text()
    complete = folder / "lockstep-peers.txt"  # what was installed; written last
    if complete.is_file() and complete.read_text() == wanted:
        return python
    print(f"installing torch and fairscale (5.6 GB, some 2 minutes) into {folder}", file=sys.stderr)
    if not python.exists():
        # Debian keeps what would put pip into the environment in a package of its own.
        _run(sys.executable, "-m", "venv", "--without-pip", folder)
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet",
           "--disable-pip-version-check")
    _run(*pip, "--requirement", REQUIREMENTS)
    _run(*pip, "--no-build-isolation", "--no-deps", "--requirement", WITHOUT_DEPENDENCIES)
    complete.write_text(wanted)
    return python
