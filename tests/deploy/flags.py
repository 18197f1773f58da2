"""The flags that a program takes, by its --help."""
import re
import subprocess


def flags_of(program):
    text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"--[a-z][a-z-]*", text))
