"""The shared libraries that programs need, and the Debian packages that they are from."""
import os
import re
import subprocess

_FOUND = re.compile(r"^\s*(\S+) => (/\S+) \(0x", re.MULTILINE)
_MISSING = re.compile(r"^\s*(\S+) => not found", re.MULTILINE)

# Debian's minimal image has these, and no program runs without: what the C library and the
# compiler's own libraries are from, and zlib, which dpkg needs.
IN_EVERY_IMAGE = {"libc6", "libgcc-s1", "libstdc++6", "zlib1g"}


def needed_by(program):
    """Where the loader finds each library, by name: those of its libraries included."""
    text = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    missing = _MISSING.findall(text)
    if missing:
        raise FileNotFoundError(f"{program} needs {', '.join(missing)}: not on this machine")
    return dict(_FOUND.findall(text))


def package_of(path):
    """The Debian package that brought `path`; None: none did."""
    # A package may have it in /lib, which is a link to /usr/lib now.
    candidates = {path, os.path.join("/usr", path.lstrip("/")), re.sub("^/usr", "", path)}
    for candidate in sorted(candidates):
        result = subprocess.run(["dpkg-query", "--search", candidate], capture_output=True, text=True)
        if result.returncode == 0:
            return result.stdout.split(":")[0]
    return None
