#!/usr/bin/env python3
"""Packs programs, the libraries that Debian's minimal image lacks, and further files.

usage: pack.py OUTPUT FOLDER PATCHELF [bin|NAME=FILE]...

FOLDER is the one folder in OUTPUT, a .tar.gz. bin=FILE is a program: it goes to bin/, its
libraries to lib/, where it looks for them; with them the licences of the packages they are from.
NAME=FILE is packed as it is, as NAME. The same input gives the same bytes.
"""
import gzip
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import libraries


def patched(patchelf, program, folder):
    """A copy of `program` that looks for libraries in ../lib before it looks elsewhere.

    RPATH and not RUNPATH: it counts for what the libraries need, too.
    """
    copy = folder / program.name
    shutil.copyfile(program, copy)
    copy.chmod(0o755)
    subprocess.run([patchelf, "--force-rpath", "--set-rpath", "$ORIGIN/../lib", copy], check=True)
    return copy


class Tarball:
    """A .tar.gz of which each byte is given by what is added."""

    def __init__(self, path, folder):
        self._folder = folder
        self._members = {}
        self._path = path

    def add(self, name, source, executable=False):
        self._members[f"{self._folder}/{name}"] = (source, executable)

    def write(self):
        with open(self._path, "wb") as file, \
                gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) as packed, \
                tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for name, (source, executable) in sorted(self._members.items()):
                info = tarfile.TarInfo(name)  # owner 0, time 0
                info.mode = 0o755 if executable else 0o644
                info.size = source.stat().st_size
                with open(source, "rb") as content:
                    tar.addfile(info, content)


def main():
    output, folder, patchelf, *pairs = sys.argv[1:]
    patchelf = Path(patchelf).resolve()
    tarball = Tarball(output, folder)
    programs = []
    for name, file in (pair.split("=", 1) for pair in pairs):
        path = Path(file)
        if name == "bin":
            programs.append(path)
        else:
            tarball.add(name, path, executable=path.suffix in (".sh", ".sbatch"))
    files, packages = libraries.beyond_every_image(programs)
    for name, path in files.items():
        tarball.add(f"lib/{name}", Path(path))
    for package in packages:
        tarball.add(f"lib/licences/{package}", Path("/usr/share/doc") / package / "copyright")
    with tempfile.TemporaryDirectory() as scratch:
        for program in programs:
            copy = patched(patchelf, program, Path(scratch))
            tarball.add(f"bin/{program.name}", copy, executable=True)
        tarball.write()


if __name__ == "__main__":
    main()
