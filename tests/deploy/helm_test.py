"""The chart, rendered by helm for each file in values/: every object is what Kubernetes' published
schemas allow, unknown fields refused, and fits the others. Broken charts are found."""
import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import kubernetes_validate
import yaml

from flags import flags_of

EXTERNAL = Path("..")  # of the folder where Bazel starts tests
HELM = (EXTERNAL / "helm/bin/helm").resolve()
# A copy: Bazel's files are links.
CHART = Path(shutil.copytree("deploy/helm/lockstep", Path(os.environ["TEST_TMPDIR"]) / "lockstep"))
VALUES = sorted(Path("tests/deploy/values").resolve().glob("*.yaml"))
PROGRAMS = {
    "coordinator": Path("coordinator/server/coordinator"),
    "worker": Path("worker/trainer/worker"),
}
VERSIONS = ["1.29", "1.37"]  # the chart's oldest and the newest that is published

# Resources that are not Kubernetes' own: the package of their types. Then all packages, and what
# Bazel calls them.
TYPES = {
    "monitoring.coreos.com/v1": "@kubernetes-models/prometheus-operator",
    "cert-manager.io/v1": "@kubernetes-models/cert-manager",
}
PACKAGES = {
    "@kubernetes-models/prometheus-operator": "prometheus_operator_types",
    "@kubernetes-models/cert-manager": "cert_manager_types",
    "@kubernetes-models/apimachinery": "apimachinery_types",
    "@kubernetes-models/base": "base_types",
    "kubernetes-models": "kubernetes_types",
}


# It reads a megabyte for each object.
kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)


class UniqueKeys(yaml.SafeLoader):
    """YAML in which no key stands twice in a map: helm does not mind, a cluster might."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"given twice: {twice}", node.start_mark)
        return super().construct_mapping(node, deep)


class Refused(Exception):
    """Helm does not render it."""


def run_helm(*arguments):
    with tempfile.TemporaryDirectory() as home:
        result = subprocess.run([HELM, *arguments], capture_output=True, text=True, env={"HOME": home})
    if result.returncode != 0:
        raise Refused(result.stderr + result.stdout)
    return result.stdout


def render(chart, *arguments, release="train"):
    text = run_helm("template", release, chart, "--namespace", "space", *arguments)
    return [o for o in yaml.load_all(text, Loader=UniqueKeys) if o is not None]


def core_breaches(objects):
    breaches = []
    for o in objects:
        if o["apiVersion"] in TYPES:
            continue
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(o, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                where = ".".join(map(str, error.path))
                breaches.append(f"{o['kind']} {o['metadata']['name']}, {version}: {where}: {error.message}")
            except kubernetes_validate.SchemaNotFoundError as error:
                breaches.append(error.message)
    return breaches


def custom_breaches(objects):
    custom = [o for o in objects if o["apiVersion"] in TYPES]
    return compile_objects(json.dumps(custom)) if custom else []


@functools.cache
def compile_objects(text):
    """What TypeScript says: an object that is written as a literal may have no unknown fields."""
    with tempfile.TemporaryDirectory() as folder:
        modules = Path(folder) / "node_modules"
        (modules / "@kubernetes-models").mkdir(parents=True)
        for name, repository in PACKAGES.items():
            (modules / name).symlink_to((EXTERNAL / repository / "package").resolve())
        lines = []
        for number, o in enumerate(json.loads(text)):
            module = f'{TYPES[o["apiVersion"]]}/{o["apiVersion"]}/{o["kind"]}'
            lines.append(f'import type {{ I{o["kind"]} as T{number} }} from "{module}";')
            lines.append(f"export const o{number}: T{number} = {json.dumps(o)};")
        (Path(folder) / "objects.ts").write_text("\n".join(lines) + "\n")
        compiler = (EXTERNAL / "typescript/package/lib/tsc.js").resolve()
        result = subprocess.run(
            ["node", compiler, "--noEmit", "--strict", "--skipLibCheck", "--preserveSymlinks", "--target", "es2022",
             "--module", "esnext", "--moduleResolution", "bundler", "objects.ts"],
            cwd=folder, capture_output=True, text=True)
        return result.stdout.splitlines() if result.returncode != 0 else []


def pods(objects):
    return [(o, o["spec"]["template"]) for o in objects if o["kind"] in ("StatefulSet", "Job", "Deployment")]


def selects(labels, pod):
    return labels.items() <= pod["metadata"]["labels"].items()


def fitting_breaches(objects):
    """What names something that is in another object, but is not there."""
    breaches = []
    services = [o for o in objects if o["kind"] == "Service"]
    for o in objects:
        name = f"{o['kind']} {o['metadata']['name']}"
        labels = {
            "Service": lambda: o["spec"]["selector"],
            "StatefulSet": lambda: o["spec"]["selector"]["matchLabels"],
            "PodDisruptionBudget": lambda: o["spec"]["selector"]["matchLabels"],
            "NetworkPolicy": lambda: o["spec"]["podSelector"]["matchLabels"],
        }.get(o["kind"], lambda: None)()
        if labels is not None and not any(selects(labels, pod) for _, pod in pods(objects)):
            breaches.append(f"{name} selects no pod")
        if o["kind"] == "Service":
            ports = {port["name"] for _, pod in pods(objects) if selects(o["spec"]["selector"], pod)
                     for c in pod["spec"]["containers"] for port in c.get("ports", [])}
            breaches += [f"{name}: no port {p['targetPort']}" for p in o["spec"]["ports"]
                         if p["targetPort"] not in ports]
        if o["kind"] == "StatefulSet" and o["spec"]["serviceName"] not in [s["metadata"]["name"] for s in services]:
            breaches.append(f"{name}: no service {o['spec']['serviceName']}")
        if o["kind"] == "ServiceMonitor":
            wanted = o["spec"]["selector"]["matchLabels"]
            found = [s for s in services if wanted.items() <= s["metadata"]["labels"].items()]
            breaches += [] if len(found) == 1 else [f"{name} finds {len(found)} services"]
            breaches += [f"{name}: no port {e['port']}" for s in found for e in o["spec"]["endpoints"]
                         if e["port"] not in [p["name"] for p in s["spec"]["ports"]]]
    for o, pod in pods(objects):
        claims = [c["metadata"]["name"] for c in o["spec"].get("volumeClaimTemplates", [])]
        volumes = {v["name"] for v in pod["spec"].get("volumes", [])} | set(claims)
        for container in pod["spec"]["containers"]:
            mounted = {m["name"] for m in container.get("volumeMounts", [])}
            if mounted != volumes:
                breaches.append(f"{o['metadata']['name']}: volumes {volumes}, mounted {mounted}")
            ports = [p["name"] for p in container.get("ports", [])]
            breaches += [f"{o['metadata']['name']}: {probe} asks port {container[probe]['httpGet']['port']}"
                         for probe in ("livenessProbe", "readinessProbe")
                         if probe in container and container[probe]["httpGet"]["port"] not in ports]
    return breaches


def hardening_breaches(objects):
    breaches = []
    for o, pod in pods(objects):
        spec, name = pod["spec"], o["metadata"]["name"]
        wanted = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        if spec["automountServiceAccountToken"] or not wanted.items() <= spec["securityContext"].items():
            breaches.append(f"{name}: the pod is not confined")
        for container in spec["containers"]:
            wanted = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                      "capabilities": {"drop": ["ALL"]}}
            if container["securityContext"] != wanted:
                breaches.append(f"{name}: the container is not confined")
            if "memory" not in container["resources"]["limits"]:
                breaches.append(f"{name}: its memory has no limit")
    return breaches


def breaches_of(objects):
    return core_breaches(objects) + custom_breaches(objects) + fitting_breaches(objects) + hardening_breaches(objects)


class ChartTest(unittest.TestCase):
    def test_every_values_file_gives_objects_that_kubernetes_takes(self):
        self.assertGreaterEqual(len(VALUES), 6)
        for values in VALUES:
            with self.subTest(values.stem):
                run_helm("lint", "--strict", CHART, "--values", values)
                objects = render(CHART, "--values", values)
                self.assertEqual(breaches_of(objects), [])
                names = [(o["kind"], o["metadata"]["name"]) for o in objects]
                self.assertEqual(len(names), len(set(names)))

    def test_values_files_bring_each_kind_of_object(self):
        kinds = {v.stem: {o["kind"] for o in render(CHART, "--values", v)} for v in VALUES}
        always = {"Service", "StatefulSet"}
        self.assertEqual(kinds["coordinator_only"], always)
        default = always | {"Job", "NetworkPolicy", "PodDisruptionBudget"}
        self.assertEqual(kinds["default"], default)
        self.assertEqual(kinds["everything"], default | {"Certificate", "ServiceMonitor"})

    def test_programs_know_the_flags_that_they_are_given(self):
        known = {name: flags_of(path) for name, path in PROGRAMS.items()}
        for values in VALUES:
            for _, pod in pods(render(CHART, "--values", values)):
                for container in pod["spec"]["containers"]:
                    if container["command"][0] in known:
                        given = {a.split("=")[0] for a in container["args"] if a.startswith("--")}
                        self.assertLessEqual(given, known[container["command"][0]], values.stem)

    def test_without_tls_a_coordinator_is_told_to_be_insecure_and_with_it_is_not(self):
        for name, insecure in (("default", True), ("tls", False)):
            objects = render(CHART, "--values", VALUES[0].parent / f"{name}.yaml")
            text = json.dumps(objects)
            self.assertEqual("--insecure" in text, insecure)
            self.assertEqual("LOCKSTEP_TLS_CERTIFICATE" in text, not insecure)
            self.assertEqual('"scheme": "HTTPS"' in text, not insecure)

    def test_a_job_of_another_template_has_another_name(self):
        def jobs(*arguments):
            return {o["metadata"]["name"] for o in render(CHART, *arguments) if o["kind"] == "Job"}
        self.assertEqual(jobs(), jobs())
        self.assertEqual(len(jobs() & jobs("--set", "image.tag=v2")), 0)

    def test_long_names_stay_within_what_kubernetes_takes(self):
        for o in render(CHART, release="r" * 53):
            self.assertLessEqual(len(o["metadata"]["name"]), 60)

    def test_values_that_are_wrong_are_refused(self):
        for wrong in ("workers.replicas=two", "workers.replicas=0", "workers.kind=Deployment", "worker.replicas=2",
                      "coordinator.replicas=2", "job.name=No_Such", "job.optimizerReplicas=3", "tls.enable=true",
                      "coordinator.storage.size=much", "workers.data.nfs.path=/x"):
            with self.subTest(wrong), self.assertRaisesRegex(Refused, "values don't meet"):
                render(CHART, "--set", wrong)


class BrokenChartTest(unittest.TestCase):
    """Each mistake is made in a copy of the chart that is fine without it."""

    def breaches_with(self, file, old, new):
        with tempfile.TemporaryDirectory() as folder:
            chart = Path(folder) / "chart"
            shutil.copytree(CHART, chart)
            path = chart / "templates" / file
            text = path.read_text()
            self.assertIn(old, text)
            path.chmod(0o644)
            path.write_text(text.replace(old, new, 1))
            return breaches_of(render(chart, "--values", VALUES[0].parent / "everything.yaml"))

    def test_each_mistake_is_found(self):
        for file, old, new, expected in (
            ("coordinator.yaml", "  replicas: 1", "  replica: 1", "replica"),
            ("coordinator.yaml", "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: soon", "soon"),
            ("coordinator.yaml", "kind: Service\n", "kind: Servise\n", "servise|Servise"),
            ("coordinator.yaml", "containerPort: 7070", "containerPorts: 7070", "containerPort"),
            ("coordinator.yaml", "targetPort: grpc", "targetPort: rpc", "no port rpc"),
            ("coordinator.yaml", "mountPath: /tmp}", "mountPath: /tmp, readonly: true}", "readonly"),
            ("coordinator.yaml", "{name: tmp, emptyDir: {}}", "{name: temp, emptyDir: {}}", "mounted"),
            ("workers.yaml", "completionMode: Indexed", "completionmode: Indexed", "completionmode"),
            ("poddisruptionbudget.yaml", "minAvailable", "minimumAvailable", "minimumAvailable"),
            ("networkpolicy.yaml", "policyTypes", "policyType", "policyType"),
            ("servicemonitor.yaml", "interval:", "every:", "every"),
            ("servicemonitor.yaml", "keySecret: {name", "keySecret: {secret", "secret"),
            ("servicemonitor.yaml", "port: http", "port: metrics", "no port metrics"),
            ("certificates.yaml", "renewBefore:", "renewAhead:", "renewAhead"),
            ("certificates.yaml", "secretName: {{ .secret }}", "isCA: false", "secretName"),
            ("_helpers.tpl", "port: http", "port: web", "asks port web"),
            ("_helpers.tpl", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "not confined"),
        ):
            with self.subTest(f"{file}: {new}"):
                self.assertRegex("\n".join(self.breaches_with(file, old, new)), expected)

    def test_a_key_that_stands_twice_is_found(self):
        with self.assertRaises(yaml.constructor.ConstructorError):
            self.breaches_with("coordinator.yaml", "  replicas: 1", "  replicas: 1\n  replicas: 1")


if __name__ == "__main__":
    unittest.main()
