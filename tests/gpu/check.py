"""Proves the NCCL transport on a host with GPUs, and measures it beside torch.distributed.

Started by check.sh. Every part runs in processes of its own under a limit of its own, and what it
left undone is said; the JSON is written after each part, so there is one whatever happens.
"""
import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Of the overall limit, for writing and for processes to go.
RESERVE_SECONDS = 5
LOG_TAIL_LINES = 25
# Seconds that a part may take, if as many are left.
LIMITS = {"host": 90, "bundle": 400, "libraries": 60, "failures": 90, "conformance": 120,
          "compile": 240, "step": 100, "peers": 120}
# Of the overall limit, what tests leave to the measurements.
KEPT_FROM_TESTS = 0.4

OK, FAILED, SKIPPED = True, False, None
# What torch measures beside what Lockstep does.
PEERS_OF = {
    "lockstep.broadcast": ["torch.broadcast"],
    "lockstep.reduce_to_owners": ["torch.reduce_scatter"],
    "lockstep.step.float32": ["torch.sharded_adamw.float32", "torch.zero.float32",
                              "torch.adamw.float32"],
    "lockstep.step.bfloat16": ["torch.sharded_adamw.bfloat16", "torch.zero.bfloat16",
                               "torch.adamw.bfloat16"],
}


class PartError(Exception):
    """Why a part did not pass; `ok` is SKIPPED if this host cannot run it."""

    def __init__(self, reason, ok=FAILED):
        super().__init__(reason)
        self.ok = ok


def skip(reason):
    return PartError(reason, ok=SKIPPED)


def tail(text):
    return "\n".join(text.splitlines()[-LOG_TAIL_LINES:])


def dotted(version, thousands):
    """2.30.7 of NCCL's 23007, 13.2 of CUDA's 13020."""
    if thousands:
        return f"{version // 1000}.{version % 1000 // 10}"
    return f"{version // 10000}.{version % 10000 // 100}.{version % 100}"


def parse_tests(log):
    """(passed, failed, skipped) names of GoogleTest's output, also of one that broke off."""
    found = {"OK": set(), "FAILED": set(), "SKIPPED": set()}
    begun = re.findall(r"^\[ RUN +\] (\S+)", log, re.MULTILINE)
    for outcome, name in re.findall(r"^\[ +(OK|FAILED|SKIPPED) +\] ([\w/.]+\.[\w/]+)", log,
                                    re.MULTILINE):
        found[outcome].add(name)
    ended = set().union(*found.values())
    found["FAILED"].update(name for name in begun if name not in ended)
    return sorted(found["OK"]), sorted(found["FAILED"]), sorted(found["SKIPPED"])


def ratios_of(results):
    """How many times as long torch takes, of all that was measured alike."""
    medians = {(r["name"], r["ranks"], r["bytes"]): r["median_ms"] for r in results}
    ratios = {}
    for (name, ranks, size), median in medians.items():
        for peer in PEERS_OF.get(name, []):
            if (peer, ranks, size) in medians and median > 0:
                ratios[f"{peer} / {name}, {ranks} ranks, {size} bytes"] = round(
                    medians[peer, ranks, size] / median, 3)
    return ratios


def world_sizes(gpus):
    """1 to 4, and all: as the tests on the fake."""
    return sorted({size for size in (1, 2, 3, 4, gpus) if size <= gpus})


class Check:
    def __init__(self, options, work):
        self.options = options
        self.work = work
        self.begin = time.monotonic()
        self.end = self.begin + options.deadline - min(RESERVE_SECONDS, options.deadline / 4)
        self.output = ""  # of the last command
        self.host = {}
        self.bundle = Path(options.bundle).resolve()
        self.report = {"host": {}, "conformance": {"passed": 0, "failed": [], "skipped": [],
                                                   "world_sizes": []},
                       "results": [], "ratios": {}, "parts": []}

    def write(self):
        text = json.dumps(self.report, indent=2) + "\n"
        if self.options.out is None:
            return
        unfinished = self.options.out.with_name(self.options.out.name + ".tmp")
        unfinished.write_text(text)
        unfinished.replace(self.options.out)

    def run(self, what, command):
        """The standard output of a command, of whose process group nothing is left then."""
        left = self.end - time.monotonic()
        if what in ("failures", "conformance"):
            left -= KEPT_FROM_TESTS * self.options.deadline
        seconds = min(LIMITS[what], left)
        if seconds <= 0:
            raise PartError("no time was left for it")
        log = self.work / "log"
        with open(log, "w+") as errors, open(self.work / "output", "w+") as output:
            process = subprocess.Popen(
                [str(word) for word in command], stdout=output, stderr=errors, text=True,
                stdin=subprocess.DEVNULL, start_new_session=True, cwd=self.work)
            late = False
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                late = True
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
        text = self.output = (self.work / "output").read_text(errors="replace")
        said = tail(text + log.read_text(errors="replace"))
        if late:
            raise PartError(f"it did not end within {seconds:.0f} s; the end of its log:\n{said}")
        if process.returncode != 0:
            raise PartError(f"exit code {process.returncode}; the end of its log:\n{said}")
        return text

    def part(self, name, act):
        """Runs and notes a part; whether it passed."""
        begin = time.monotonic()
        print(f"[{begin - self.begin:4.0f} s] {name} ...", flush=True)
        ok, reason = OK, ""
        try:
            reason = act() or ""
        except PartError as error:
            ok, reason = error.ok, str(error)
        except Exception as error:  # what follows still runs, and the JSON says this
            ok, reason = FAILED, f"{type(error).__name__}: {error}"
        self.report["parts"].append({"name": name, "ok": ok,
                                     "seconds": round(time.monotonic() - begin, 1),
                                     "reason": reason})
        word = {OK: "passed", FAILED: "FAILED", SKIPPED: "skipped"}[ok]
        print(f"         {word}{': ' + reason if reason else ''}", flush=True)
        self.report["ratios"] = ratios_of(self.report["results"])
        self.write()
        return ok is OK

    # The parts. Each returns what is worth saying, or raises PartError.

    def ask_host(self):
        host = json.loads(self.run("host", [sys.executable, HERE / "host.py"]).splitlines()[-1])
        self.host = host
        torch = host["torch"]
        if self.options.torch:
            torch = host["torch"] = {"version": "of --torch", "cuda": None, "cxx11_abi": True,
                                     "root": str(self.options.torch.resolve())}
        self.report["host"] = {
            "python": host["python"], "glibc": os.confstr("CS_GNU_LIBC_VERSION"),
            "cores": os.cpu_count(),
            "torch": torch and torch["version"], "torch_cuda": torch and torch["cuda"],
            "libnccl": host["libnccl"], "libcudart": host["libcudart"]}
        if self.options.fake:
            self.report["host"]["fake"] = True
            host["libnccl"] = host["libcudart"] = str(self.options.fake.resolve())
        for option, key in (("nccl", "libnccl"), ("cuda_runtime", "libcudart")):
            if getattr(self.options, option):
                host[key] = getattr(self.options, option)
        self.report["host"].update(libnccl=host["libnccl"], libcudart=host["libcudart"])
        if shutil.which("nvidia-smi"):
            names = self.run("host", ["nvidia-smi", "--query-gpu=name,driver_version",
                                      "--format=csv,noheader"]).splitlines()
            self.report["host"]["gpus"] = [name.split(",")[0].strip() for name in names]
            self.report["host"]["driver"] = names[0].split(",")[1].strip() if names else None
        return f"torch {torch['version']}" if torch else f"no PyTorch: {host['no_torch']}"

    def find_programs(self):
        glibc = tuple(int(n) for n in os.confstr("CS_GNU_LIBC_VERSION").split()[1].split("."))
        if (self.bundle / "gpu_conformance").exists():
            if glibc < (2, 36):
                raise PartError(f"the programs need glibc 2.36, and this host has "
                                f"{'.'.join(map(str, glibc))}: make the bundle on it")
            return f"the programs of {self.bundle}"
        if not shutil.which("bazel"):
            raise PartError(f"there is no bundle at {self.bundle}, and no bazel to make it here: "
                            "run tests/gpu/bundle.sh on a machine that builds Lockstep, and copy "
                            "tests/gpu/bundle here")
        self.run("bundle", [HERE / "bundle.sh", self.bundle])
        return "the programs were made here, by bazel"

    def libraries(self):
        return [f"--nccl={self.host.get('libnccl') or 'libnccl.so.2'}",
                f"--cuda-runtime={self.host.get('libcudart') or 'libcudart.so.13'}"]

    def load_libraries(self):
        found = json.loads(self.run(
            "libraries", [self.bundle / "gpu_conformance", "--describe", *self.libraries()]))
        host = self.report["host"]
        host["gpu_count"] = found["gpus"]
        host["nccl"] = dotted(found["nccl"], thousands=False)
        host["cuda"] = dotted(found["cuda_runtime"], thousands=True)
        host["driver_cuda"] = dotted(found["cuda_driver"], thousands=True)
        return f"{found['gpus']} GPUs, NCCL {host['nccl']}, CUDA {host['cuda']}"

    def run_tests(self, what, tests, ranks):
        self.output = ""  # if it is not even begun
        error = None
        try:
            self.run(what, [self.bundle / "gpu_conformance", f"--ranks={ranks}",
                            f"--gtest_filter={tests}", *self.libraries()])
        except PartError as raised:
            error = raised
        passed, failed, skipped = parse_tests(self.output)
        counts = self.report["conformance"]
        counts["passed"] += len(passed)
        counts["failed"] += failed
        counts["skipped"] += skipped
        if error is not None:
            raise PartError(f"failed: {', '.join(failed) or 'before a test began'}; {error}")
        if not passed and not skipped:
            raise PartError(f"no test is called {tests}")
        skips = f", {len(skipped)} skipped" if skipped else ""
        return f"{len(passed)} tests{skips}"

    def run_conformance(self, ranks):
        said = self.run_tests("conformance", "*TransportConformance*", ranks)
        self.report["conformance"]["world_sizes"].append(ranks)
        return said

    def compile_step(self):
        """gpu_step against this host's PyTorch; the path of the program."""
        built = self.bundle / "gpu_step"
        if built.exists():
            self.step = built
            return "built before, with LibTorch of the build"
        torch = self.host.get("torch")
        if not torch:
            raise skip(f"this host's Python has no PyTorch ({self.host.get('no_torch')})")
        if not torch["cuda"] and not self.options.fake:
            raise skip(f"PyTorch {torch['version']} is one without CUDA")
        if not torch["cxx11_abi"]:
            raise skip("this PyTorch is built with the C++ ABI from before C++11")
        compiler = shutil.which(os.environ.get("CXX", "g++"))
        if not compiler:
            raise skip("there is no g++")
        root = Path(torch["root"])
        include, libraries = root / "include", root / "lib"
        if not (include / "ATen" / "core" / "Tensor.h").exists():
            raise skip(f"there are no headers of PyTorch at {include}")
        flags = ["-std=c++20", "-O2", "-ffp-contract=off", "-w", "-pthread",
                 f"-I{self.bundle / 'source'}", f"-isystem{self.bundle / 'include'}",
                 f"-isystem{include}", f"-isystem{include / 'torch/csrc/api/include'}"]
        sources = sorted((self.bundle / "source").rglob("*.cc"))
        objects = [self.work / (source.stem + ".o") for source in sources]
        # One shell, so that all go with it when it is late.
        script = "pids=''\n"
        for source, made in zip(sources, objects):
            words = [compiler, *flags, "-c", source, "-o", made]
            script += " ".join(f"'{word}'" for word in words) + " & pids=\"$pids $!\"\n"
        script += "for pid in $pids; do wait $pid || exit 1; done\n"
        self.run("compile", ["bash", "-c", script])
        of_cuda = [] if self.options.fake else ["-ltorch_cuda", "-lc10_cuda"]
        self.step = self.work / "gpu_step"
        self.run("compile", [
            compiler, *objects, self.bundle / "lib" / "liblockstep.a", "-o", self.step, "-pthread",
            # libtorch_cuda registers its kernels when it is loaded; nothing refers to it.
            f"-L{libraries}", "-Wl,--no-as-needed", *of_cuda, "-ltorch_cpu", "-lc10",
            "-Wl,--as-needed", "-ldl", f"-Wl,-rpath,{libraries}",
            # What those need in their turn lies in other wheels, where they find it.
            "-Wl,--unresolved-symbols=ignore-in-shared-libs"])
        return f"g++, PyTorch {torch['version']}"

    def read_results(self, what, command):
        self.output = ""
        try:
            self.run(what, command)
        finally:
            lines = [line for line in self.output.splitlines() if line.startswith('{"name"')]
            self.report["results"] += [json.loads(line) for line in lines]
        if not lines:
            raise PartError("it measured nothing")
        return f"{len(lines)} measurements"

    def run_step(self):
        small = ["--small"] if self.options.fake else []
        device = "cpu" if self.options.fake else "cuda"
        return self.read_results("step", [self.step, f"--device={device}", *small,
                                          *self.libraries()])

    def run_peers(self):
        torch = self.host.get("torch")
        if self.options.fake:
            raise skip("torch.distributed cannot use a fake of NCCL")
        if not torch:
            raise skip(f"this host's Python has no PyTorch ({self.host.get('no_torch')})")
        if not torch.get("gpus"):
            raise skip(f"PyTorch {torch['version']} sees no GPU")
        return self.read_results("peers", [sys.executable, HERE / "peer.py"])

    def leave_out(self, names, reason):
        def refuse():
            raise skip(reason)

        for name in names:
            self.part(name, refuse)

    def run_all(self):
        self.part("host", self.ask_host)
        if not self.part("programs", self.find_programs):
            self.leave_out(["libraries", "failures", "conformance", "compile", "step"],
                           "there are no programs")
        else:
            usable = self.part("libraries", self.load_libraries)
            if usable:
                self.part("failures", lambda: self.run_tests("failures", "GpuFailures.*", 1))
                for ranks in world_sizes(self.report["host"]["gpu_count"]):
                    self.part(f"conformance of {ranks} ranks",
                              lambda: self.run_conformance(ranks))
            else:
                self.leave_out(["failures", "conformance"], "the libraries cannot be used")
            if self.part("compile", self.compile_step) and usable:
                self.part("step", self.run_step)
            else:
                self.leave_out(["step"], "the libraries cannot be used" if not usable
                               else "it was not compiled")
        self.part("peers", self.run_peers)


def main():
    parser = argparse.ArgumentParser(
        prog="check.sh", description=__doc__.splitlines()[0],
        epilog="Exit code: 0 if all passed that can run on this host, else 1.")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON here")
    parser.add_argument("--deadline", type=float, default=480, metavar="SECONDS",
                        help="for everything (480)")
    parser.add_argument("--bundle", default=HERE / "bundle", metavar="DIR",
                        help="what bundle.sh has made (tests/gpu/bundle)")
    parser.add_argument("--nccl", metavar="FILE", help="libnccl.so.2 (PyTorch's)")
    parser.add_argument("--cuda-runtime", metavar="FILE", help="libcudart.so.13 (PyTorch's)")
    parser.add_argument("--fake", type=Path, metavar="FILE",
                        help="a library in place of NCCL and CUDA, and the CPU in place of GPUs: "
                             "proves this script alone")
    parser.add_argument("--torch", type=Path, metavar="DIR",
                        help="LibTorch to compile with, in place of Python's")
    options = parser.parse_args()
    # Another signal would leave processes behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if options.out is not None:
        options.out = options.out.resolve()
    with tempfile.TemporaryDirectory(prefix="lockstep-gpu-") as work:
        check = Check(options, Path(work))
        check.run_all()
    if options.out is None:
        print(json.dumps(check.report, indent=2))
    parts = check.report["parts"]
    proven = any(part["ok"] and part["name"].startswith("conformance") for part in parts)
    return 0 if proven and not any(part["ok"] is FAILED for part in parts) else 1


if __name__ == "__main__":
    sys.exit(main())
