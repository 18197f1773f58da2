"""The units: what systemd-analyze says of them, and that the programs run under their filters."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import confine
from cluster import STEPS, Cluster

HERE = Path(__file__).parent
SYSTEMD = Path("../systemd/root").resolve()
UNITS = Path("deploy/systemd")
COORDINATOR = UNITS / "lockstep-coordinator.service"
WORKER = UNITS / "lockstep-worker@.service"
PROGRAMS = {
    "coordinator": Path("coordinator/server/coordinator").resolve(),
    "worker": Path("worker/trainer/worker").resolve(),
    "lockstepctl": Path("client/ctl/lockstepctl").resolve(),
}
MOST_EXPOSURE = 20  # of 100; what systemd-analyze calls 2.0


def make_analyze(folder):
    """A program that runs the unpacked systemd-analyze with its libraries."""
    libraries = [SYSTEMD / p for p in ("usr/lib/x86_64-linux-gnu/systemd", "usr/lib/x86_64-linux-gnu",
                                       "lib/x86_64-linux-gnu")]
    script = Path(folder) / "systemd-analyze"
    script.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={":".join(map(str, libraries))} '
                      f'exec {SYSTEMD}/usr/bin/systemd-analyze "$@"\n')
    script.chmod(0o755)
    return script


class SystemdTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        self.analyze = make_analyze(self.folder)

    def run_analyze(self, *words):
        result = subprocess.run([self.analyze, "--no-pager", *words], capture_output=True, text=True)
        return result.returncode, result.stdout + result.stderr

    def host(self, **changes):
        """The root of a host with the units and programs where they belong."""
        root = self.folder / "root"
        shutil.copytree(SYSTEMD / "lib/systemd/system", root / "usr/lib/systemd/system", symlinks=True)
        for name in PROGRAMS:
            program = root / "opt/lockstep/bin" / name
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)
        shutil.copytree(UNITS / "etc", root / "etc")
        units = root / "etc/systemd/system"
        units.mkdir(parents=True)
        for unit in (COORDINATOR, WORKER):
            text = unit.read_text()
            for old, new in changes.get(unit.stem.replace("-", "_").rstrip("@"), {}).items():
                self.assertIn(old, text)
                text = text.replace(old, new)
            (units / unit.name).write_text(text)
        return root

    def complaints(self, **changes):
        root = self.host(**changes)
        _, output = self.run_analyze("verify", f"--root={root}", "--man=no", "--recursive-errors=no",
                                     str(root / "etc/systemd/system" / COORDINATOR.name),
                                     str(root / "etc/systemd/system/lockstep-worker@0.service"))
        shutil.rmtree(root)
        return [line for line in output.splitlines() if "lockstep" in line]

    def test_the_units_are_without_fault(self):
        self.assertEqual(self.complaints(), [])

    def test_faults_are_found(self):
        for unit, old, new, expected in (
            ("lockstep_coordinator", "Restart=on-failure", "Restart=sometimes", "sometimes"),
            ("lockstep_coordinator", "StateDirectory=", "StateDirectry=", "StateDirectry"),
            ("lockstep_coordinator", "/opt/lockstep/bin/coordinator", "/opt/lockstep/bin/coordinate", "coordinate"),
            ("lockstep_worker", "RestrictAddressFamilies=AF_INET ", "RestrictAddressFamilies=AF_INETT ", "AF_INETT"),
            ("lockstep_worker", "SystemCallFilter=@system-service", "SystemCallFilter=@no-such-set", "no-such-set"),
        ):
            with self.subTest(new):
                self.assertIn(expected, "\n".join(self.complaints(**{unit: {old: new}})))

    def security(self, unit):
        return self.run_analyze("security", "--offline=yes", f"--threshold={MOST_EXPOSURE}", str(unit))

    def test_the_units_expose_little(self):
        for unit in (COORDINATOR, WORKER):
            copy = self.folder / unit.name
            shutil.copyfile(unit, copy)
            code, output = self.security(copy)
            self.assertEqual(code, 0, output)
            weaker = re.sub("(?m)^(SystemCallFilter|CapabilityBoundingSet|ProtectSystem)=.*$", "", unit.read_text())
            copy.write_text(weaker)
            self.assertEqual(self.security(copy)[0], 1)

    def test_workers_of_a_host_can_open_each_others_memory(self):
        text = WORKER.read_text()
        settings = dict(re.findall(r"(?m)^([A-Z]\w+)=(.*)$", text))
        self.assertEqual(settings["User"], "lockstep")
        self.assertEqual({"DynamicUser", "PrivateUsers", "ProcSubset", "MemoryDenyWriteExecute"} & set(settings), set())
        # The first gives the memory; without the second a rank that is gone is noticed by its number
        # only, which another process may have by then.
        allowed = confine.allowed_calls(confine.read_unit(WORKER), self.analyze)
        self.assertLessEqual({"memfd_create", "pidfd_open"}, allowed)

    def test_settings_name_variables_that_the_programs_read(self):
        for unit, sample in ((COORDINATOR, "coordinator.env"), (WORKER, "worker.env")):
            given = set(re.findall(r"(?m)^#?([A-Z_]+)=", (UNITS / "etc/lockstep" / sample).read_text()))
            used = set(re.findall(r"\$\{?([A-Z_]+)", unit.read_text()))
            program = PROGRAMS[unit.name.split("-")[1].split(".")[0].rstrip("@")]
            text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
            read = set(re.findall(r"\(Env:([A-Z_]+)\)", text)) | {"OMP_NUM_THREADS"}
            self.assertLessEqual(given, used | read)
            self.assertLessEqual(used, given)

    def confined(self, unit, program):
        python = [sys.executable, str((HERE / "confine.py").resolve())]
        return [*python, str(unit.resolve()), str(self.analyze), str(program)]

    def test_a_job_trains_over_shared_memory_within_the_units_filters(self):
        # For convolutions LibTorch compiles kernels, which takes memory that can be executed.
        for transport, model in (("shm", "conv"), ("gloo", "mlp")):
            folder = self.folder / transport
            folder.mkdir()
            with Cluster(folder, self.confined(COORDINATOR, PROGRAMS["coordinator"]),
                         self.confined(WORKER, PROGRAMS["worker"]), [PROGRAMS["lockstepctl"]],
                         {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}) as cluster:
                cluster.start_coordinator()
                reports = cluster.train("--transport", transport, model=model)
                self.assertEqual([r["steps"] for r in reports], [STEPS, STEPS])
                self.assertEqual(cluster.stop_coordinator(), 0, cluster.log("coordinator"))

    def test_the_filters_hold(self):
        for words, allowed in (
            (["-c", "import socket; socket.socket(socket.AF_INET)"], True),
            (["-c", "import socket; socket.socket(socket.AF_PACKET)"], False),
            (["-c", "import mmap; mmap.mmap(-1, 4096, prot=3)"], True),
            (["-c", "import mmap; mmap.mmap(-1, 4096, prot=7)"], False),
            (["-c", "import os; os.sched_setaffinity(0, os.sched_getaffinity(0))"], False),
        ):
            with self.subTest(words[1]):
                result = subprocess.run([*self.confined(COORDINATOR, sys.executable), *words], capture_output=True)
                self.assertEqual(result.returncode == 0, allowed, result.stderr)


if __name__ == "__main__":
    unittest.main()
