"""What deploy/prometheus holds is what promtool takes, and is about metrics that the programs serve:
a coordinator and two workers that train are scraped. docs/metrics.md says the same as they do."""
import json
import os
import re
import shutil
import ssl
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

import yaml

from cluster import MNIST, PATIENCE, Cluster

PROMTOOL = Path("../promtool/root/usr/bin/promtool").resolve()
# A copy: Bazel's files are links. With the files that the sample names.
FOLDER = Path(shutil.copytree("deploy/prometheus", Path(os.environ["TEST_TMPDIR"]) / "prometheus"))
(FOLDER / "tls").mkdir()
for name in ("ca.pem", "viewer.pem", "viewer.key"):
    (FOLDER / "tls" / name).touch()

ALERTS = [rule for group in yaml.safe_load((FOLDER / "lockstep.rules.yaml").read_text())["groups"]
          for rule in group["rules"]]


def promtool(*arguments, folder=FOLDER, text=None):
    """What it complains about; empty: nothing."""
    result = subprocess.run([PROMTOOL, *arguments], cwd=folder, input=text, capture_output=True, text=True,
                            timeout=PATIENCE)
    return result.stdout + result.stderr if result.returncode != 0 else ""


class Served:
    """Metrics as texts of Prometheus' format give them."""

    def __init__(self, *texts):
        self.types, self.help, self.labels = {}, {}, {}
        for line in "\n".join(texts).splitlines():
            if line.startswith("# TYPE "):
                _, _, name, self.types[name] = line.split()
                self.labels.setdefault(name, set())
            elif line.startswith("# HELP "):
                _, _, name, self.help[name] = line.split(maxsplit=3)
            elif line:
                sample, labels = re.match(r"(\w+)(\{.*\})?", line).groups()
                self.labels[self.family(sample)] |= set(re.findall(r'(\w+)="', labels or "")) - {"le"}

    def family(self, sample):
        return sample if sample in self.types else re.sub("_(bucket|sum|count)$", "", sample)

    def samples(self):
        suffixes = {"histogram": ("_bucket", "_sum", "_count")}
        return {name + suffix for name, kind in self.types.items() for suffix in suffixes.get(kind, ("",))}

    def rows(self):
        """Of docs/metrics.md."""
        return [f"| `{name}` | {kind} | {', '.join(sorted(self.labels[name]))} | {self.help[name]} |"
                for name, kind in self.types.items()]


def unknown_metrics(text, served):
    return set(re.findall(r"\blockstep_\w+", text)) - served.samples()


def anchors(markdown):
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
            for title in re.findall(r"^#+ (.+)$", markdown, re.MULTILINE)}


class FilesTest(unittest.TestCase):
    def test_promtool_takes_them(self):
        self.assertEqual(promtool("check", "rules", "--lint-fatal", "lockstep.rules.yaml"), "")
        self.assertEqual(promtool("check", "config", "--lint-fatal", "prometheus.yaml"), "")
        self.assertEqual(promtool("test", "rules", "lockstep.rules.test.yaml"), "")

    def test_each_alert_says_how_grave_it_is_and_what_to_do(self):
        sections = anchors(Path("deploy/runbook.md").read_text())
        for alert in ALERTS:
            with self.subTest(alert["alert"]):
                self.assertIn(alert["labels"]["severity"], ("critical", "warning"))
                self.assertTrue(alert["annotations"]["summary"])
                file, section = alert["annotations"]["runbook"].split("#")
                self.assertEqual(file, "deploy/runbook.md")
                self.assertIn(section, sections)

    def test_each_alert_is_in_the_runbook(self):
        text = Path("deploy/runbook.md").read_text()
        self.assertEqual({a["alert"] for a in ALERTS}, set(re.findall(r"^\| (Lockstep\w+) \|", text, re.MULTILINE)))

    def test_each_alert_is_seen_to_fire(self):
        text = (FOLDER / "lockstep.rules.test.yaml").read_text()
        self.assertGreater(len(ALERTS), 10)
        for alert in ALERTS:
            name = alert["alert"]
            self.assertRegex(text, f"alertname: {name}\n|alertstate=\"firing\".*{name}|{name}\",alertstate=\"firing\"")

    def test_each_mistake_in_a_rule_is_found(self):
        for old, new in (
            ("== 1\n        labels", "= = 1\n        labels"),
            ("absent(lockstep_coordinator_generation)", "lockstep_coordinator_generation == 0"),
            ("< ignoring (state)", "<= ignoring (state)"),
            ('{state!="left"}', ""),
            ('how="failed"', 'how="regrouped"'),
            ("max by (job)", "max"),
            ("offset 30m", "offset 3m"),
            ("0.99", "0.5"),
        ):
            with self.subTest(new), tempfile.TemporaryDirectory() as folder:
                copy = Path(shutil.copytree(FOLDER, Path(folder) / "copy"))
                text = (copy / "lockstep.rules.yaml").read_text()
                self.assertIn(old, text)
                (copy / "lockstep.rules.yaml").chmod(0o644)
                (copy / "lockstep.rules.yaml").write_text(text.replace(old, new, 1))
                self.assertNotEqual(promtool("test", "rules", "lockstep.rules.test.yaml", folder=copy), "")


def http_address(log):
    found = re.search(r"http://(127\.0\.0\.1:\d+)/", log)
    return found and found.group(1)


def get(address, path):
    with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE) as response:
        return response.read().decode()


class ServedTest(unittest.TestCase):
    """Against a job that trains."""

    @classmethod
    def setUpClass(cls):
        folder = Path(tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"]))
        cls.cluster = Cluster(folder, *([str(Path(p).resolve())] for p in (
            "coordinator/server/coordinator", "worker/trainer/worker", "client/ctl/lockstepctl")))
        cls.addClassCleanup(cls.cluster.__exit__)
        flags = ("--http", "127.0.0.1:0", "--log-format", "json")
        cls.cluster.start_coordinator(*flags)
        cls.cluster.start_workers("--model", "mlp", "--batch", "8", "--epochs", "1000000", "--drift-every", "1", *flags)
        give_up = time.monotonic() + PATIENCE
        cls.texts = {}
        while time.monotonic() < give_up and not cls.is_complete():
            time.sleep(0.05)
            for name in ("coordinator", "worker-0", "worker-1"):
                address = http_address(cls.cluster.log(name))
                if address:
                    cls.texts[name] = get(address, "/metrics")
        if not cls.is_complete():
            raise AssertionError(f"no steps and drift are served: {cls.texts}")
        cls.served = Served(*cls.texts.values())

    @classmethod
    def is_complete(cls):
        return len(cls.texts) == 3 and all('name="drift"' in text for text in cls.texts.values())

    def test_promtool_takes_what_is_served(self):
        for name, text in self.texts.items():
            self.assertEqual(promtool("check", "metrics", text=text), "", name)

    def test_workers_tell_what_they_do(self):
        for name in ("worker-0", "worker-1"):
            text = self.texts[name]
            self.assertIn(f'lockstep_training_world_size{{job="mnist",worker="{name}"}} 2\n', text)
            self.assertRegex(text, r"lockstep_training_step_seconds_count\{.*\} [1-9]")
            self.assertRegex(text, r'lockstep_training_phase_seconds_count\{.*phase="collected"\} [1-9]')
            self.assertRegex(text, r"lockstep_sync_bytes_total\{.*\} \d")
            self.assertEqual(get(http_address(self.cluster.log(name)), "/readyz"), "ok\n")

    def test_rules_and_dashboard_name_what_is_served(self):
        for name in ("lockstep.rules.yaml", "lockstep.rules.test.yaml", "grafana-dashboard.json"):
            self.assertEqual(unknown_metrics((FOLDER / name).read_text(), self.served), set(), name)

    def test_a_metric_that_is_not_served_is_found(self):
        self.assertEqual(unknown_metrics("rate(lockstep_job_steps[5m]) + lockstep_training_step_seconds", self.served),
                         {"lockstep_job_steps", "lockstep_training_step_seconds"})

    def test_the_dashboards_queries_are_taken(self):
        dashboard = json.loads((FOLDER / "grafana-dashboard.json").read_text())
        queries = [t["expr"] for panel in dashboard["panels"] for t in panel.get("targets", [])]
        self.assertGreater(len(queries), 20)
        rules = [{"record": f"query_{i}", "expr": q.replace("$__rate_interval", "1m").replace("$job", ".+")}
                 for i, q in enumerate(queries)]
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "queries.yaml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}))
            self.assertEqual(promtool("check", "rules", "queries.yaml", folder=folder), "")

    def test_the_documentation_lists_what_is_served(self):
        rows = [line for line in Path("docs/metrics.md").read_text().splitlines() if line.startswith("| `lockstep_")]
        self.assertEqual("\n".join(rows), "\n".join(self.served.rows()))

    def test_logs_are_json_with_what_they_are_about(self):
        for name in ("coordinator", "worker-0", "worker-1"):
            lines = [json.loads(line) for line in self.cluster.log(name).splitlines()]
            for line in lines:
                self.assertLessEqual({"time", "level", "process", "message"}, set(line))
                self.assertEqual(line["process"], name)
            started = "started" if name == "coordinator" else "training as rank"
            line, = [line for line in lines if started in line["message"] and "epoch" in line]
            self.assertEqual((line["job"], line["epoch"]), ("mnist", 1))
            if name != "coordinator":
                self.assertIn(line["rank"], (0, 1))


class TlsTest(unittest.TestCase):
    """A worker that trains alone and serves by TLS."""

    def ask(self, address, path, certificate=None):
        """The status of the answer."""
        context = ssl.create_default_context()
        # As prometheus.yaml says: a worker's certificate names a role, not a host, and is a client's.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if certificate:
            context.load_cert_chain(self.folder / f"{certificate}.pem", self.folder / f"{certificate}.key")
        try:
            with urllib.request.urlopen(f"https://{address}{path}", context=context, timeout=PATIENCE) as response:
                return response.status
        except urllib.error.HTTPError as error:
            return error.code

    def test_metrics_take_the_role_viewer(self):
        self.folder = Path(tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"]))
        for role, name in (("worker", "w0"), ("viewer", "eve")):
            subprocess.run(["tools/dev_ca.sh", self.folder, role, name], check=True, capture_output=True)
        log = self.folder / "log"
        with open(log, "w") as output:
            worker = subprocess.Popen(
                ["worker/trainer/worker", "--data", MNIST, "--model", "mlp", "--epochs", "1000000", "--http",
                 "0.0.0.0:0", "--tls-certificate", self.folder / "w0.pem", "--tls-key", self.folder / "w0.key",
                 "--tls-authorities", self.folder / "ca.pem"], stderr=output)
        try:
            give_up = time.monotonic() + PATIENCE
            while not (found := re.search(r"https://0\.0\.0\.0:(\d+)/", log.read_text())):
                self.assertLess(time.monotonic(), give_up, log.read_text())
                time.sleep(0.01)
            address = f"127.0.0.1:{found.group(1)}"
            self.assertEqual(self.ask(address, "/metrics", "eve"), 200)
            self.assertEqual(self.ask(address, "/metrics", "w0"), 403)
            self.assertEqual(self.ask(address, "/metrics"), 401)
            self.assertEqual(self.ask(address, "/livez"), 200)
        finally:
            worker.kill()
            worker.wait()


if __name__ == "__main__":
    unittest.main()
