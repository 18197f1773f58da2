"""The tarball: what it holds, and that a job trains from it where it is unpacked, without anything
of the build tree."""
import re
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

from cluster import STEPS, Cluster

VERSION = re.search(r'VERSION = "(.+)"', Path("deploy/version.bzl").read_text()).group(1)
NAME = f"lockstep-{VERSION}-linux-x86_64"
TARBALL = Path(f"deploy/{NAME}.tar.gz")
PROGRAMS = ("coordinator", "worker", "lockstepctl")
# What the C library, the compiler's libraries and zlib bring: on every Debian.
FROM_THE_SYSTEM = {
    "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1", "libgcc_s.so.1",
    "libstdc++.so.6", "libz.so.1",
}


class TarballTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        with tarfile.open(TARBALL) as tar:
            cls.members = tar.getmembers()
            tar.extractall(scratch.name)
        cls.root = Path(scratch.name) / NAME

    def test_the_same_input_gives_the_same_bytes(self):
        names = [m.name for m in self.members]
        self.assertEqual(names, sorted(set(names)))
        self.assertEqual({(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in self.members}, {(0, 0, 0, "", "")})
        self.assertEqual({m.mode for m in self.members}, {0o644, 0o755})
        self.assertTrue(all(m.isreg() and m.name.startswith(NAME + "/") for m in self.members))
        self.assertEqual(TARBALL.read_bytes()[4:8], bytes(4))  # gzip's time

    def test_it_holds_what_its_readme_says(self):
        text = (self.root / "README.md").read_text()
        named = set(re.findall(r"`((?:bin|lib|share)(?:/[\w./]+)?)`", text)) | set(re.findall(r"\]\(([^)]+)\)", text))
        self.assertGreaterEqual(len(named), 8)
        for name in named:
            self.assertTrue((self.root / name).exists(), name)

    def test_one_version_stands_on_everything(self):
        chart = (self.root / "share/helm/lockstep/Chart.yaml").read_text()
        self.assertIn(f"\nversion: {VERSION}\n", chart)
        self.assertIn(f'\nappVersion: "{VERSION}"\n', chart)

    def test_every_library_is_in_it_or_on_every_debian(self):
        for program in PROGRAMS:
            text = subprocess.run(["ldd", self.root / "bin" / program], capture_output=True, text=True, check=True,
                                  env={}).stdout
            found = dict(re.findall(r"(\S+) => (\S+)", text))
            self.assertGreater(len(found), 50)
            for name, path in found.items():
                inside = (self.root / "bin" / path).resolve().is_relative_to(self.root.resolve())
                self.assertTrue(inside != (name in FROM_THE_SYSTEM), f"{program}: {name} => {path}")

    def test_each_library_has_its_licence(self):
        licences = {p.name for p in (self.root / "lib/licences").iterdir()}
        self.assertTrue({"libssl3", "libgrpc29", "libprotobuf32", "libabsl20220623"} <= licences)
        for package in ("torch", "nvidia_cuda_runtime", "nvidia_cuda_cupti"):
            self.assertTrue(any(name.startswith(package + "-") for name in licences), package)

    def test_a_job_trains_from_it(self):
        programs = {name: [self.root / "bin" / name] for name in PROGRAMS}
        with tempfile.TemporaryDirectory() as folder, Cluster(folder, **programs) as cluster:
            cluster.start_coordinator()
            reports = cluster.train()
            self.assertEqual([r["steps"] for r in reports], [STEPS, STEPS])
            self.assertIn("mnist", cluster.ctl("job", "list"))
            self.assertEqual(cluster.stop_coordinator(), 0, cluster.log("coordinator"))


if __name__ == "__main__":
    unittest.main()
