#!/usr/bin/env python3
"""check.sh on the fake of NCCL and CUDA: all of it but the device.

Run by Bazel in the folder of its runfiles.
"""
import importlib.util
import json
import os
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

GPU = Path("tests/gpu").resolve()
FAKES = Path("worker/transport/nccl/fake/libraries").resolve()

spec = importlib.util.spec_from_file_location("check", GPU / "check.py")
check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check)


def run_check(*arguments, environment=None):
    """(exit code, what was printed, JSON) of check.sh."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        # The folder of the test has the programs that a bundle has.
        done = subprocess.run(
            [GPU / "check.sh", f"--bundle={GPU}", f"--out={out}", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=dict(os.environ, **(environment or {})))
        return done.returncode, done.stdout, json.loads(out.read_text())


def part_of(report, name):
    return next(part for part in report["parts"] if part["name"] == name)


class CheckTest(unittest.TestCase):
    def test_a_host_where_all_is_well(self):
        code, printed, report = run_check(f"--fake={FAKES / 'libfake.so'}")
        self.assertEqual(code, 0, printed)
        host = report["host"]
        self.assertTrue(host["fake"])
        self.assertEqual(host["gpu_count"], 2)
        self.assertRegex(host["nccl"], r"^2\.\d+\.\d+$")
        self.assertRegex(host["cuda"], r"^13\.\d+$")
        conformance = report["conformance"]
        self.assertEqual(conformance["world_sizes"], [1, 2])
        self.assertEqual(conformance["failed"], [])
        # The suite for two sizes, and those of failures.
        self.assertGreater(conformance["passed"], 70)
        for result in report["results"]:
            self.assertEqual(result["ranks"], 2)
            self.assertLess(0, result["best_ms"])
            self.assertLessEqual(result["best_ms"], result["median_ms"])
            self.assertAlmostEqual(result["gb_per_s"],
                                   result["bytes"] / result["median_ms"] / 1e6,
                                   delta=1e-3 * result["gb_per_s"])
        kinds = sorted((result["name"], result["bytes"]) for result in report["results"])
        self.assertEqual(kinds, [
            ("lockstep.broadcast", 65536), ("lockstep.broadcast", 262144),
            ("lockstep.reduce_to_owners", 65536), ("lockstep.reduce_to_owners", 262144),
            ("lockstep.step.bfloat16", 40960), ("lockstep.step.float32", 81920)])
        self.assertEqual([(part["name"], part["ok"]) for part in report["parts"]], [
            ("host", True), ("programs", True), ("libraries", True), ("failures", True),
            ("conformance of 1 ranks", True), ("conformance of 2 ranks", True),
            ("compile", True), ("step", True), ("peers", None)])
        self.assertIn("cannot use a fake", part_of(report, "peers")["reason"])
        self.assertIn("conformance of 2 ranks", printed)

    def test_a_test_that_fails_makes_it_fail(self):
        # Its broadcasts do nothing, and say that all is well.
        code, _, report = run_check(f"--fake={FAKES / 'libbroadcasts_nothing.so'}")
        self.assertEqual(code, 1)
        self.assertTrue(any("Broadcast" in name and name.endswith("/2Ranks")
                            for name in report["conformance"]["failed"]),
                        report["conformance"])
        self.assertTrue(part_of(report, "conformance of 1 ranks")["ok"])
        self.assertFalse(part_of(report, "conformance of 2 ranks")["ok"])
        # Wrong results are not timed.
        self.assertFalse(part_of(report, "step")["ok"])
        self.assertIn("are wrong", part_of(report, "step")["reason"])
        self.assertNotIn(2, report["conformance"]["world_sizes"])

    def test_a_host_without_nccl_is_told_what_to_install(self):
        code, printed, report = run_check("--nccl=/nowhere/libnccl.so.2",
                                          f"--cuda-runtime={FAKES / 'libfake.so'}")
        self.assertEqual(code, 1)
        for text in (printed, part_of(report, "libraries")["reason"]):
            self.assertIn("/nowhere/libnccl.so.2 cannot be loaded", text)
            self.assertIn("install NCCL 2.27.0 or newer", text)
        for name in ("failures", "conformance", "step"):
            self.assertIsNone(part_of(report, name)["ok"])
            self.assertIn("libraries cannot be used", part_of(report, name)["reason"])

    def test_a_runtime_of_cuda_12_is_refused(self):
        code, _, report = run_check(f"--nccl={FAKES / 'libfake.so'}",
                                    f"--cuda-runtime={FAKES / 'libcuda_12_9.so'}")
        self.assertEqual(code, 1)
        self.assertIn("is the CUDA runtime 12.9", part_of(report, "libraries")["reason"])

    def test_a_host_with_neither_bundle_nor_bazel_is_told_what_to_do(self):
        with tempfile.TemporaryDirectory() as empty:
            (Path(empty) / "python3").symlink_to(subprocess.check_output(
                ["which", "python3"], text=True).strip())
            for tool in ("bash", "dirname", "readlink"):
                (Path(empty) / tool).symlink_to(f"/usr/bin/{tool}")
            code, _, report = run_check(f"--fake={FAKES / 'libfake.so'}", f"--bundle={empty}",
                                        environment={"PATH": empty})
        self.assertEqual(code, 1)
        self.assertIn("tests/gpu/bundle.sh", part_of(report, "programs")["reason"])
        self.assertEqual([part["ok"] for part in report["parts"]],
                         [True, False, None, None, None, None, None, None])

    def test_the_deadline_is_kept_and_what_was_left_undone_is_said(self):
        begin = time.monotonic()
        code, _, report = run_check(f"--fake={FAKES / 'libfake.so'}", "--deadline=12")
        self.assertLess(time.monotonic() - begin, 12)
        self.assertEqual(code, 1)
        # The deadlines of its tests alone are longer.
        failures = part_of(report, "failures")
        self.assertFalse(failures["ok"])
        self.assertIn("did not end within", failures["reason"])
        # The end of its log, and the test that it was at.
        self.assertIn("[ RUN      ] GpuFailures.", failures["reason"])
        self.assertTrue(any(name.startswith("GpuFailures.")
                            for name in report["conformance"]["failed"]))
        last = part_of(report, "conformance of 2 ranks")
        self.assertFalse(last["ok"])
        self.assertIn("no time was left", last["reason"])

    def test_ratios_compare_what_was_measured_alike(self):
        def result(name, size, median):
            return {"name": name, "ranks": 2, "bytes": size, "median_ms": median}

        self.assertEqual(
            check.ratios_of([result("lockstep.broadcast", 64, 2.0),
                             result("torch.broadcast", 64, 3.0),
                             result("torch.broadcast", 128, 9.0),
                             result("lockstep.step.float32", 64, 4.0),
                             result("torch.zero.float32", 64, 2.0)]),
            {"torch.broadcast / lockstep.broadcast, 2 ranks, 64 bytes": 1.5,
             "torch.zero.float32 / lockstep.step.float32, 2 ranks, 64 bytes": 0.5})

    def test_a_log_that_breaks_off_has_the_last_test_as_failed(self):
        log = ("[ RUN      ] A.B/2Ranks\n[       OK ] A.B/2Ranks (1 ms)\n"
               "[ RUN      ] A.C/2Ranks\n[  SKIPPED ] A.C/2Ranks (0 ms)\n"
               "[ RUN      ] A.D/2Ranks\n[  FAILED  ] A.D/2Ranks, where GetParam() = x (1 ms)\n"
               "[ RUN      ] A.E/2Ranks\n")
        self.assertEqual(check.parse_tests(log),
                         (["A.B/2Ranks"], ["A.D/2Ranks", "A.E/2Ranks"], ["A.C/2Ranks"]))


if __name__ == "__main__":
    unittest.main()
