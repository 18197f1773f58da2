#!/usr/bin/env python3
"""Writes files as C++ that holds their bytes.

usage: embed.py FILE... > page_files.cc

Each file is served under its name.
"""
import sys
from pathlib import Path


def literal(data):
    return "".join(f"\\{byte:03o}" for byte in data)


def main():
    print('#include "coordinator/web/page_files.h"\n\nnamespace lockstep {\n')
    print("const std::map<std::string, absl::string_view>& PageFiles() {")
    print("  static const auto* const files = new std::map<std::string, absl::string_view>{")
    for path in map(Path, sys.argv[1:]):
        data = path.read_bytes()
        # Long literals are written in parts, which compilers take one after the other.
        parts = "\n      ".join(f'"{literal(data[i:i + 4000])}"' for i in range(0, len(data), 4000))
        print(f'      {{"{path.name}", absl::string_view({parts}, {len(data)})}},')
    print("  };\n  return *files;\n}\n\n}  // namespace lockstep")


if __name__ == "__main__":
    main()
