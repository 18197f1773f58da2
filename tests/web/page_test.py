"""The coordinator's web page in a real Chromium: load, live update, a policy change with preview, a
stale etag, 200 workers; and who gets what over HTTPS.

usage: page_test.py COORDINATOR WORKER LOCKSTEPCTL CROWD DEV_CA [--screenshots FOLDER]
"""
import argparse
import http.client
import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "deploy"))
from cluster import MNIST, PATIENCE, Cluster  # noqa: E402
from selenium import webdriver  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402

PROGRAMS = argparse.Namespace()


def start_browser(folder):
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync",
                 "--disable-dev-shm-usage", "--no-proxy-server", "--ignore-certificate-errors",
                 "--window-size=1280,1500", f"--user-data-dir={folder}/profile"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)


class WebCluster(Cluster):
    """With the address of its web server."""

    def serve(self, *flags):
        self.start_coordinator("--http", "127.0.0.1:0", *flags)
        found = re.search(r"(https?)://(127\.0\.0\.1:\d+)/", self.log("coordinator"))
        self.scheme, self.web = found.groups()

    def crowd(self, job, workers, *flags):
        self._start("crowd", [PROGRAMS.crowd, "--coordinator", self.address, "--job", job,
                              "--workers", str(workers), *flags])

    def train(self, job, *flags):
        for name in ("w0", "w1"):
            self._start(name, [*self._worker, "--coordinator", self.address, "--job", job, "--name", name,
                               "--data", str(MNIST), "--model", "conv", "--epochs", "1000", "--batch", "8",
                               "--drift-every", "5", *flags])


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        environment = {"OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"]}
        cls.cluster = WebCluster(cls.folder.name, [PROGRAMS.coordinator], [PROGRAMS.worker],
                                 [PROGRAMS.lockstepctl], environment)
        cls.cluster.serve()
        # Buffers drift apart at first.
        policy = f"{cls.folder.name}/policy.json"
        Path(policy).write_text('{"broadcastBuffers": false}')
        cls.cluster.ctl("job", "create", "mnist", "--min-workers", "2", "--policy", policy)
        cls.cluster.train("mnist")
        cls.browser = start_browser(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.cluster.__exit__()
        cls.folder.cleanup()

    def setUp(self):
        self.open("mnist")

    def open(self, job):
        self.browser.get("about:blank")
        self.browser.get(f"{self.cluster.scheme}://{self.cluster.web}/#{job}")
        self.wait("live", lambda: self.text("link") == "live")

    def tearDown(self):
        errors = [entry for entry in self.browser.get_log("browser")
                  if entry["level"] == "SEVERE" and "409" not in entry["message"] and "400" not in entry["message"]]
        self.assertEqual(errors, [])

    def wait(self, what, condition):
        give_up = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > give_up:
                self.fail(f"not within {PATIENCE} s: {what}\n{self.browser.find_element(By.TAG_NAME, 'body').text}"
                          f"\n{self.cluster.log('coordinator')}")
            time.sleep(0.05)

    def text(self, element):
        return self.browser.find_element(By.ID, element).text

    def find(self, element):
        return self.browser.find_element(By.ID, element)

    def rows(self, table):
        """The cells' texts, at one moment."""
        return self.browser.execute_script(
            "return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)]"
            ".map(row => [...row.cells].map(cell => cell.textContent))", table)

    def facts(self):
        return dict(self.browser.execute_script(
            "return [...document.querySelectorAll('#facts div')].map(div => [...div.children].map(c => c.textContent))"))

    def screenshot(self, name, around=None):
        if PROGRAMS.screenshots:
            if around:
                self.browser.execute_script(
                    "document.getElementById(arguments[0]).closest('section').scrollIntoView()", around)
            self.browser.save_screenshot(str(Path(PROGRAMS.screenshots) / f"{name}.png"))

    def draft(self, policy):
        area = self.find("draft")
        area.clear()
        area.send_keys(json.dumps(policy))

    def test_1_loads(self):
        self.wait("two train", lambda: self.text("workers-text") == "2, of whom 2 train")
        self.wait("who does what", lambda: [row[:4] for row in self.rows("workers")] ==
                  [["0", "w0", "training", "training"], ["1", "w1", "training", "training"]])
        self.wait("plan", lambda: len(self.find("plan").find_elements(By.TAG_NAME, "span")) == 2)
        self.assertIn("on 2 ranks", self.text("plan-text"))
        widths = [part.size["width"] for part in self.find("plan").find_elements(By.TAG_NAME, "span")]
        self.assertLess(abs(widths[0] - widths[1]), 0.1 * sum(widths))
        names = [row[0] for row in self.rows("buffers")]
        self.assertTrue(any(name.endswith("running_mean") for name in names), names)
        self.assertEqual(self.text("buffers-text"), f"{len(names)} of {len(names)} are synchronised")
        self.assertEqual({row[4] for row in self.rows("buffers")}, {"at start"})
        self.assertEqual([row[0] for row in self.rows("revisions")], ["1"])

    def test_2_is_live(self):
        step = int(self.facts()["step"])
        self.wait("steps go on", lambda: int(self.facts()["step"]) > step)
        self.wait("a rate", lambda: self.facts()["steps/s"] not in ("", "0.0"))
        self.wait("drift", lambda: self.find("drift").find_elements(By.TAG_NAME, "canvas"))
        self.assertFalse(self.find("no-drift").is_displayed())

    def test_3_changes_a_policy_after_a_preview(self):
        self.wait("revision 1", lambda: len(self.rows("revisions")) == 1)
        self.find("edit").click()
        self.assertFalse(self.find("apply").is_enabled(), "nothing is applied unseen")
        self.draft({"broadcastBuffers": True, "allowList": ["**.running_*"], "schedule": {"everySteps": "2"}})
        self.find("preview").click()
        self.wait("preview", lambda: self.find("preview-result").is_displayed())
        diff = self.text("diff")
        self.assertRegex(diff, r'(?m)^\+.*\*\*\.running_\*')
        self.assertRegex(self.text("costs"), r"Synchronised: 9 -> 6 of 9 buffers.*after a step: 0 buffers, 0 B -> 6 buffers")
        self.assertTrue(self.find("apply").is_enabled())
        self.screenshot("policy-preview", around="editor")
        # What was previewed is what is applied: another draft takes another preview.
        self.find("draft").send_keys(" ")
        self.assertFalse(self.find("apply").is_enabled())
        self.find("preview").click()
        self.wait("preview again", lambda: self.find("apply").is_enabled())
        self.find("reason").send_keys("statistics together")
        self.find("apply").click()
        self.wait("in force", lambda: self.rows("revisions")[0][:2] == ["2", "effective"])
        self.assertEqual(self.rows("revisions")[0][5], "statistics together")
        self.wait("buffers follow", lambda: self.text("buffers-text") == "6 of 9 are synchronised")
        history = json.loads(self.cluster.ctl("policy", "history", "mnist", "--json"))
        revisions = history["revisions"] if isinstance(history, dict) else history
        self.assertEqual(int(revisions[0]["revision"]), 2)
        time.sleep(3)  # for a chart worth looking at
        self.browser.execute_script("window.scrollTo(0, 0)")
        self.screenshot("page")

    def test_4_says_what_is_wrong_with_a_draft(self):
        self.wait("newest", lambda: self.find("edit").is_displayed())
        self.find("edit").click()
        self.find("draft").clear()
        self.find("draft").send_keys("{")
        self.find("preview").click()
        self.wait("no JSON", lambda: "no JSON" in self.text("editor-error"))
        self.draft({"allowList": ["**.runing_mean"]})
        self.find("preview").click()
        self.wait("no match", lambda: "runing_mean" in self.text("editor-error"))
        self.assertFalse(self.find("apply").is_enabled())

    def test_5_loses_nobodys_change(self):
        self.wait("newest", lambda: self.find("edit").is_displayed())
        self.find("edit").click()
        revisions = len(self.rows("revisions"))
        self.draft({"broadcastBuffers": False})
        self.find("preview").click()
        self.wait("preview", lambda: self.find("apply").is_enabled())
        self.cluster.ctl("policy", "set", "mnist", "--every-steps", "7", "--reason", "somebody else")
        self.find("apply").click()
        self.wait("conflict", lambda: "etag" in self.text("editor-error"))
        self.wait("offer", lambda: self.find("rebase").is_displayed())
        self.screenshot("conflict", around="editor")
        self.find("rebase").click()
        self.assertIn(f"from revision {revisions + 1}", self.text("editor"))
        self.assertIn('"everySteps": "7"', self.find("draft").get_attribute("value"))
        self.assertEqual(len(self.rows("revisions")), revisions + 1)

    def test_6_shows_200_workers(self):
        self.cluster.ctl("job", "create", "crowd", "--min-workers", "200")
        self.cluster.crowd("crowd", 200)
        self.open("crowd")
        self.wait("200 train", lambda: self.text("workers-text") == "200, of whom 200 train")
        self.assertEqual([row[0] for row in self.rows("workers")], [str(rank) for rank in range(200)])
        self.wait("plan", lambda: len(self.find("plan").find_elements(By.TAG_NAME, "span")) == 200)
        step = int(self.facts()["step"])
        self.wait("live", lambda: int(self.facts()["step"]) > step)
        # A round of questions and drawing is done well within its second.
        busy = self.browser.execute_async_script("""
            const done = arguments[0], entries = [];
            new PerformanceObserver(list => entries.push(...list.getEntries())).observe({entryTypes: ["longtask"]});
            setTimeout(() => done(entries.reduce((sum, entry) => sum + entry.duration, 0)), 5000);""")
        self.assertLess(busy, 2500, "ms of 5000 in which the page did not answer")
        self.screenshot("workers-200")

    def test_7_shows_that_the_coordinator_is_gone(self):
        folder = tempfile.TemporaryDirectory()
        with WebCluster(folder.name, [PROGRAMS.coordinator], [PROGRAMS.worker], [PROGRAMS.lockstepctl]) as other:
            other.serve()
            self.browser.get(f"http://{other.web}/")
            self.wait("no job", lambda: self.find("no-job").is_displayed())
        self.wait("gone", lambda: "does not answer" in self.text("link"))
        self.browser.get_log("browser")  # its complaints are right
        folder.cleanup()


class HttpsTest(unittest.TestCase):
    """Who gets what, by certificate and by token."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.ca = f"{cls.folder.name}/ca"
        for words in (["server", "localhost", "127.0.0.1"], ["viewer", "victor"], ["operator", "alice"],
                      ["worker", "w0"], ["operator", "clerk", "job=other"]):
            subprocess.run([PROGRAMS.dev_ca, cls.ca, *words], check=True)
        subprocess.run([PROGRAMS.dev_ca, f"{cls.ca}2", "operator", "mallory"], check=True)
        cls.tokens = Path(cls.folder.name) / "tokens"
        line = subprocess.run([PROGRAMS.lockstepctl, "token", "new", "tom", "--role", "viewer", "--out",
                               f"{cls.folder.name}/tom.token"], check=True, capture_output=True, text=True).stdout
        cls.tokens.write_text(line)
        cls.token = Path(f"{cls.folder.name}/tom.token").read_text().strip()
        cls.cluster = WebCluster(cls.folder.name, [PROGRAMS.coordinator], [], [PROGRAMS.lockstepctl])
        cls.cluster.serve("--tls-certificate", f"{cls.ca}/server.pem", "--tls-key", f"{cls.ca}/server.key",
                          "--tls-authorities", f"{cls.ca}/ca.pem", "--tokens", str(cls.tokens))

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__()
        cls.folder.cleanup()

    def ask(self, path, who=None, token=None, body=None, ca=None):
        context = ssl.create_default_context(cafile=f"{self.ca}/ca.pem")
        if who:
            context.load_cert_chain(f"{ca or self.ca}/{who}.pem", f"{ca or self.ca}/{who}.key")
        connection = http.client.HTTPSConnection(*self.cluster.web.split(":"), context=context, timeout=20)
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            connection.request("GET" if body is None else "POST", path, body, headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def test_health_is_anybodys(self):
        self.assertEqual(self.ask("/livez")[0], 200)
        self.assertEqual(self.ask("/readyz")[0], 200)

    def test_metrics_and_jobs_take_a_role(self):
        for path, body in (("/metrics", None), ("/lockstep.v1.JobService/ListJobs", "{}")):
            self.assertEqual(self.ask(path, body=body)[0], 401)
            self.assertEqual(self.ask(path, "w0", body=body)[0], 403)
            self.assertEqual(self.ask(path, "victor", body=body)[0], 200)
            self.assertEqual(self.ask(path, "alice", body=body)[0], 200)
            self.assertEqual(self.ask(path, token=self.token, body=body)[0], 200)
            self.assertEqual(self.ask(path, token="guessed", body=body)[0], 401)
            self.assertEqual(self.ask(path, "alice", token="guessed", body=body)[0], 401, "a token goes first")
            self.assertEqual(self.ask(path, "mallory", body=body, ca=f"{self.ca}2")[0], 401, "another authority")

    def test_roles_and_jobs_hold_as_over_grpc(self):
        create = "/lockstep.v1.JobService/CreateJob"
        body = json.dumps({"spec": {"name": "made", "minWorkers": 1}})
        status, text = self.ask(create, "victor", body=body)
        self.assertEqual((status, json.loads(text)["code"]), (403, "permission_denied"))
        self.assertIn("operator", json.loads(text)["message"])
        self.assertEqual(self.ask(create, "clerk", body=body)[0], 403, "is bound to another job")
        self.assertEqual(self.ask(create, "alice", body=body)[0], 200)
        self.assertEqual(self.ask(create, "alice", body=body)[0], 409)
        jobs = json.loads(self.ask("/lockstep.v1.JobService/ListJobs", "clerk", body="{}")[1])["jobs"]
        self.assertEqual(jobs, [], "sees only its own")

    def test_a_revision_is_its_callers(self):
        self.ask("/lockstep.v1.JobService/CreateJob", "alice",
                 body=json.dumps({"spec": {"name": "owned", "minWorkers": 1}}))
        status, text = self.ask(
            "/lockstep.v1.SyncPolicyService/UpdateSyncPolicy", "alice",
            body=json.dumps({"job": "owned", "policy": {"broadcastBuffers": False}, "author": "somebody else"}))
        self.assertEqual(status, 200)
        self.assertEqual(json.loads(text)["revision"]["author"], "alice")

    def test_says_what_is_wrong(self):
        for path, body, status in (("/lockstep.v1.JobService/GetJob", "{", 400),
                                   ("/lockstep.v1.JobService/GetJob", '{"jab": 1}', 400),
                                   ("/lockstep.v1.JobService/GetJob", '{"job": "nonsuch"}', 404),
                                   ("/lockstep.v1.JobService/Nonsuch", "{}", 403),
                                   ("/lockstep.v1.Nonsuch/GetJob", "{}", 403),
                                   ("/lockstep.v1.JobService/WatchJob", "{}", 501)):
            self.assertEqual(self.ask(path, "alice", body=body)[0], status, path + body)

    def test_a_body_without_end_is_cut_off(self):
        with self.assertRaises((ConnectionError, http.client.HTTPException, ssl.SSLError)):
            self.ask("/lockstep.v1.JobService/GetJob", "alice", body="x" * (5 << 20))
        self.assertEqual(self.ask("/livez")[0], 200)

    def test_a_renewed_certificate_is_taken_without_a_restart(self):
        def serial():
            context = ssl.create_default_context(cafile=f"{self.ca}/ca.pem")
            connection = http.client.HTTPSConnection(*self.cluster.web.split(":"), context=context, timeout=20)
            try:
                connection.connect()
                return connection.sock.getpeercert()["serialNumber"]
            finally:
                connection.close()
        before = serial()
        subprocess.run([PROGRAMS.dev_ca, self.ca, "server", "localhost", "127.0.0.1"], check=True)
        give_up = time.monotonic() + PATIENCE
        while serial() == before:
            self.assertLess(time.monotonic(), give_up)
            time.sleep(0.2)
        self.assertEqual(self.ask("/metrics", "victor")[0], 200)

    def test_the_page_asks_for_a_token(self):
        browser = start_browser(tempfile.mkdtemp(dir=self.folder.name))
        try:
            browser.get(f"https://{self.cluster.web}/")
            give_up = time.monotonic() + PATIENCE
            while not browser.find_element(By.ID, "sign-in").is_displayed():
                self.assertLess(time.monotonic(), give_up)
                time.sleep(0.05)
            browser.find_element(By.ID, "token").send_keys(self.token)
            browser.find_element(By.CSS_SELECTOR, "#sign-in button").click()
            while browser.find_element(By.ID, "who").text != "tom (viewer)":
                self.assertLess(time.monotonic(), give_up)
                time.sleep(0.05)
            self.assertFalse(browser.find_element(By.ID, "edit").is_displayed(), "viewers change nothing")
        finally:
            browser.quit()


def main():
    parser = argparse.ArgumentParser()
    for name in ("coordinator", "worker", "lockstepctl", "crowd", "dev_ca"):
        parser.add_argument(name, type=lambda path: str(Path(path).resolve()))
    parser.add_argument("--screenshots", type=Path, help="folder for pictures of the page")
    parser.add_argument("--only", action="append", default=[], help="a test, as HttpsTest.test_says_what_is_wrong")
    parser.parse_args(namespace=PROGRAMS)
    unittest.main(argv=[sys.argv[0], *PROGRAMS.only], verbosity=2)


if __name__ == "__main__":
    main()
