#!/usr/bin/env python3
"""Rules on the tree that the build cannot enforce; prints each breach.

usage: lint.py ROOT
       lint.py --self-test      check the rules against lines that break them

Layers (docs/architecture.md, section 7), what pure packages may not use, and
what every header must have.
"""
import re
import sys
from pathlib import Path

TORCH_USERS = ["worker/torch", "worker/transport/gloo", "worker/session", "worker/trainer", "tests"]

# Includes that only the folders listed may have.
GUARDED_INCLUDES = {
    # Element types, which need no library.
    r"torch/headeronly/": TORCH_USERS + [
        "worker/numeric", "worker/optim", "worker/combine", "worker/transport/conformance",
    ],
    r"torch/(?!headeronly/)|ATen/|c10/": TORCH_USERS,
    r"grpcpp/|grpc/": [
        "proto", "coordinator/rpc", "coordinator/server", "coordinator/web", "worker/agent", "client", "security", "tests", "tools",
    ],
    r"sqlite3\.h": ["coordinator/store"],
    r"openssl/|gnutls/": ["security"],
    r"microhttpd\.h": ["http"],
    r"prometheus/": ["metrics"],
    r"re2/": ["common/policy"],
    r"spdlog/|fmt/": ["common/base"],
    r"xxhash\.h": ["common/base"],
    r"zlib\.h": ["worker/checkpoint"],
}

# What would make a pure package depend on time, chance, threads or I/O.
PURE = ["common/manifest", "common/policy", "common/sharding", "common/protocol", "coordinator/core", "worker/core"]
IMPURE = (
    r"\b(absl::Now|system_clock|steady_clock|sleep_for|SleepFor|std::thread|std::mutex|MutexLock|"
    r"unordered_map|unordered_set|flat_hash_map|flat_hash_set|random_device|mt19937|BitGen|fopen|ifstream|ofstream)\b"
    r"|\.pb\.h|[^_a-zA-Z]rand\("
)

# Own packages that a layer may not include.
FORBIDDEN_OWN = {
    "common/": ["coordinator/", "worker/", "client/", "proto/", "tools/"],
    "coordinator/": ["worker/", "client/", "tools/"],
    "worker/": ["coordinator/", "client/"],
    "client/": ["coordinator/", "worker/"],
    "coordinator/core": ["coordinator/store", "coordinator/runtime", "coordinator/rpc", "coordinator/server", "proto/"],
    "worker/core": ["worker/transport", "worker/engine", "worker/optim", "worker/agent", "proto/"],
}

# But for these, which are no plane's own.
ALLOWED_OWN = {"client/ctl/": ["worker/checkpoint/"]}

SKIPPED = [".git", "third_party", "out", "tests/gpu/bundle"]
INCLUDE = re.compile(r'^\s*#include\s+[<"]([^>"]+)[>"]')


def is_allowed(name, included):
    return any(name.startswith(layer) and included.startswith(folder)
               for layer, folders in ALLOWED_OWN.items() for folder in folders)


def is_test(path):
    return path.stem.endswith(("_test", "_fixture")) or path.parts[0] == "tests"


def check_line(path, line):
    """The breaches of one line of the C++ file `path` (relative to the root)."""
    name = path.as_posix()
    breaches = []
    include = INCLUDE.match(line)
    if include:
        included = include.group(1)
        for pattern, folders in GUARDED_INCLUDES.items():
            if re.match(pattern, included) and not any(name.startswith(folder + "/") for folder in folders):
                breaches.append(f"only {', '.join(folders)} may include {included}")
        if not is_test(path):
            for layer, forbidden in FORBIDDEN_OWN.items():
                if name.startswith(layer) and not is_allowed(name, included):
                    breaches += [f"{layer} may not include {included}" for f in forbidden if included.startswith(f)]
    code = line.split("//")[0]
    if not is_test(path) and any(name.startswith(folder + "/") for folder in PURE) and re.search(IMPURE, code):
        breaches.append("a pure package uses no clock, thread, chance, hash order, file or proto")
    if re.search(r"\b(TODO|FIXME|XXX)\b", line):
        breaches.append("open ends belong in the issues, not in the code")
    return breaches


def check_header(path, text):
    guard = "LOCKSTEP_" + re.sub(r"[/.]", "_", path.as_posix()).upper() + "_"
    if f"#ifndef {guard}\n" not in text:
        return [f"the guard must be {guard}"]
    if not text.startswith("//"):
        return ["a header starts with a comment that says what it is"]
    return []


def check_tree(root):
    breaches = []
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        skipped = relative.parts[0].startswith("bazel-") or any(map(relative.is_relative_to, SKIPPED))
        if skipped or not path.is_file():
            continue
        if path.suffix not in (".h", ".cc"):
            continue
        text = path.read_text()
        for number, line in enumerate(text.splitlines(), 1):
            breaches += [f"{relative}:{number}: {why}" for why in check_line(relative, line)]
        if path.suffix == ".h":
            breaches += [f"{relative}:1: {why}" for why in check_header(relative, text)]
    return breaches


def self_test():
    breaking = [
        ("worker/engine/engine.cc", "#include <torch/torch.h>"),
        ("worker/combine/combine.cc", "#include <torch/torch.h>"),
        ("worker/transport/pieces.cc", "#include <torch/headeronly/util/Half.h>"),
        ("coordinator/core/state.cc", "#include <grpcpp/grpcpp.h>"),
        ("coordinator/core/state.cc", '#include "coordinator/store/store.h"'),
        ("common/policy/pattern.cc", '#include "worker/core/agreement.h"'),
        ("common/policy/pattern.cc", "const absl::Time now = absl::Now();"),
        ("worker/core/agreement.cc", "std::unordered_map<int, int> map;"),
        ("client/client.cc", '#include "worker/checkpoint/export.h"'),
        ("client/ctl/main.cc", '#include "worker/engine/engine.h"'),
        ("client/client.cc", "// TODO: later"),
    ]
    fine = [
        ("client/ctl/checkpoint_commands.cc", '#include "worker/checkpoint/export.h"'),
        ("worker/torch/module_model.cc", "#include <torch/torch.h>"),
        ("worker/combine/combine.cc", "#include <torch/headeronly/util/Half.h>"),
        ("coordinator/rpc/job_service.cc", "#include <grpcpp/grpcpp.h>"),
        ("common/policy/pattern.cc", "// unlike absl::Now() this is pure"),
        ("coordinator/runtime/coordinator.cc", '#include "coordinator/core/state.h"'),
    ]
    wrong = [f"not found: {case}" for case in breaking if not check_line(Path(case[0]), case[1])]
    wrong += [f"found wrongly: {case}" for case in fine if check_line(Path(case[0]), case[1])]
    if not check_header(Path("common/base/ids.h"), "// x\n#ifndef OTHER_H_\n"):
        wrong.append("a wrong guard is not found")
    return wrong


def main():
    breaches = self_test() if sys.argv[1] == "--self-test" else check_tree(Path(sys.argv[1]))
    print("\n".join(breaches))
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
