#!/usr/bin/env python3
"""Runs a program under what a unit file allows, as systemd would.

usage: confine.py UNIT ANALYZE PROGRAM [ARGUMENT]...

Takes over SystemCallFilter, SystemCallErrorNumber, RestrictAddressFamilies, MemoryDenyWriteExecute
and NoNewPrivileges; ANALYZE is systemd-analyze, which knows the sets of system calls.
What a unit says of folders, users and limits takes root to do, and is not done here.
"""
import ctypes
import errno
import os
import socket
import subprocess
import sys

PR_SET_NO_NEW_PRIVS = 38
ALLOW = 0x7FFF0000
MASKED_EQUAL, EQUAL = 7, 4
PROT_WRITE, PROT_EXEC = 2, 4


class Comparison(ctypes.Structure):
    _fields_ = [("argument", ctypes.c_uint), ("operation", ctypes.c_int), ("a", ctypes.c_uint64),
                ("b", ctypes.c_uint64)]


def read_unit(path):
    """Values of each setting, in order."""
    settings = {}
    for line in open(path):
        if "=" in line and not line.startswith("#"):
            name, value = line.strip().split("=", 1)
            settings.setdefault(name, []).append(value)
    return settings


def calls_of(analyze, name):
    """The system calls of a set, sets in it included."""
    if not name.startswith("@"):
        return {name}
    text = subprocess.run([analyze, "--no-pager", "syscall-filter", name], capture_output=True, text=True,
                          check=True).stdout
    calls = set()
    for word in (line.strip() for line in text.splitlines()[1:]):
        if word and not word.startswith("#"):
            calls |= calls_of(analyze, word)
    return calls


def allowed_calls(settings, analyze):
    allowed = calls_of(analyze, "@default")
    for value in settings["SystemCallFilter"]:
        names = value.lstrip("~").split()
        calls = set().union(*(calls_of(analyze, name) for name in names))
        allowed = allowed - calls if value.startswith("~") else allowed | calls
    return allowed


class Filter:
    def __init__(self, error):
        self._library = ctypes.CDLL("libseccomp.so.2")
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._library.seccomp_init(0x00050000 | error))

    def allow(self, call, *comparisons):
        number = self._library.seccomp_syscall_resolve_name(call.encode())
        if number < 0:
            return  # of another architecture
        array = (Comparison * len(comparisons))(*comparisons)
        done = self._library.seccomp_rule_add_array(self._context, ALLOW, number, len(comparisons), array)
        assert done == 0, f"{call}: {os.strerror(-done)}"

    def load(self):
        done = self._library.seccomp_load(self._context)
        assert done == 0, os.strerror(-done)


def main():
    unit, analyze, *words = sys.argv[1:]
    settings = read_unit(unit)
    calls = allowed_calls(settings, analyze)
    calls_filter = Filter(getattr(errno, settings["SystemCallErrorNumber"][-1]))
    for family in settings["RestrictAddressFamilies"][-1].split():
        calls_filter.allow("socket", Comparison(0, EQUAL, getattr(socket, family), 0))
    calls.discard("socket")
    if settings.get("MemoryDenyWriteExecute") == ["yes"]:
        for protection in (PROT_WRITE, PROT_EXEC):
            calls_filter.allow("mmap", Comparison(2, MASKED_EQUAL, protection, 0))
        calls_filter.allow("mprotect", Comparison(2, MASKED_EQUAL, PROT_EXEC, 0))
        calls -= {"mmap", "mprotect", "pkey_mprotect"}
    for call in sorted(calls):
        calls_filter.allow(call)
    assert ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    calls_filter.load()
    os.execv(words[0], words)


if __name__ == "__main__":
    main()
