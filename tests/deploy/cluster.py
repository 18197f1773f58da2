"""A coordinator and two workers that train a few steps, from programs that a test names."""
import json
import subprocess
import time
from pathlib import Path

MNIST = Path("../mnist/package/data").resolve()
PATIENCE = 60  # seconds
STEPS = 5


def await_file(path, process, log):
    """What `path` holds, once `process` has written it."""
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up and process.poll() is None:
        if path.exists() and path.read_text():
            return path.read_text().strip()
        time.sleep(0.01)
    raise AssertionError(f"{path.name} was not written: {log.read_text()}")


class Cluster:
    """Programs as lists of words: what runs them may stand before. Ended with the `with`."""

    def __init__(self, folder, coordinator, worker, lockstepctl, environment=None):
        self.folder = Path(folder)
        self._coordinator, self._worker, self._ctl = coordinator, worker, lockstepctl
        self._environment = {} if environment is None else environment
        self._processes = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self._processes.values()):
            process.kill()
            process.wait()

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def _start(self, name, words):
        with open(self.folder / f"{name}.log", "w") as log:
            self._processes[name] = subprocess.Popen(
                words, stdout=log, stderr=subprocess.STDOUT, cwd="/", env=self._environment)
        return self._processes[name]

    def start_coordinator(self, *flags):
        port_file = self.folder / "port"
        process = self._start("coordinator", [
            *self._coordinator, "--listen", "127.0.0.1:0", "--store", str(self.folder / "store.db"),
            "--port-file", str(port_file), *flags])
        self.address = await_file(port_file, process, self.folder / "coordinator.log")

    def ctl(self, *words):
        result = subprocess.run([*self._ctl, "--coordinator", self.address, *words], cwd="/",
                                env=self._environment, capture_output=True, text=True, timeout=PATIENCE)
        if result.returncode != 0:
            raise AssertionError(f"lockstepctl {words}: {result.stderr}")
        return result.stdout

    def start_workers(self, *flags):
        """Of a job that is made for them."""
        self.ctl("job", "create", "mnist", "--min-workers", "2")
        for i in range(2):
            self._start(f"worker-{i}", [
                *self._worker, "--coordinator", self.address, "--job", "mnist", "--name", f"worker-{i}", "--data",
                str(MNIST), "--report", str(self.folder / f"{i}.json"), *flags])

    def train(self, *flags, model="mlp"):
        """Two workers, STEPS steps; what each reported at its end."""
        self.start_workers("--model", model, "--batch", "8", "--steps", str(STEPS), *flags)
        for i in range(2):
            code = self._processes[f"worker-{i}"].wait(PATIENCE)
            if code != 0:
                raise AssertionError(f"worker-{i} ended with {code}: {self.log(f'worker-{i}')}")
        return [json.loads((self.folder / f"{i}.json").read_text()) for i in range(2)]

    def stop_coordinator(self):
        """Its exit code."""
        self._processes["coordinator"].terminate()
        return self._processes["coordinator"].wait(PATIENCE)
