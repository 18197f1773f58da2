"""The shared libraries that programs need, and the Debian packages that they are from."""
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


def packages_of(paths):
    """The Debian package that brought each path; a path that none brought is left out."""
    owners = {}
    # A package may have it in /lib, which is a link to /usr/lib now. One call: each reads all lists.
    named = {variant: path for path in paths for variant in (path, "/usr" + path, re.sub("^/usr", "", path))}
    result = subprocess.run(["dpkg-query", "--search", *sorted(named)], capture_output=True, text=True)
    for line in result.stdout.splitlines():
        package, found = line.split(": ", 1)
        if found in named:
            owners[named[found]] = package.split(":")[0]
    return owners


def beyond_every_image(programs):
    """What the programs need that a minimal image lacks: paths by name, and their Debian packages."""
    paths = {}
    for program in programs:
        paths.update(needed_by(program))
    owners = packages_of([path for path in paths.values() if path.startswith(("/lib/", "/usr/lib/"))])
    lacking = {name: path for name, path in paths.items() if owners.get(path) not in IN_EVERY_IMAGE}
    return lacking, {owners[path] for path in lacking.values() if path in owners}
