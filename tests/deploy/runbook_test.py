"""The runbook quotes what programs say, and names commands that there are."""
import re
import subprocess
import unittest
from pathlib import Path

RUNBOOK = Path("deploy/runbook.md")
CTL = Path("client/ctl/lockstepctl")
TREE = Path("WORKSPACE").resolve().parent
# LibTorch's own words.
FOREIGN = {"could not create a primitive"}

LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def said():
    """All string literals of the programs; those that a compiler joins are joined."""
    texts = []
    for folder in ("client", "coordinator", "security", "worker"):
        for path in sorted((TREE / folder).rglob("*.cc")):
            if path.stem.endswith("_test"):
                continue
            text = re.sub(r'"\s*\n\s*"', "", path.read_text())
            texts += LITERAL.findall(text)
    return texts


def rows():
    """Cells of the tables' rows."""
    for line in RUNBOOK.read_text().splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


class RunbookTest(unittest.TestCase):
    def test_programs_say_what_it_quotes(self):
        texts = said()
        quotes = []
        for cells in rows():
            column = 1 if cells[0].split(",")[0] in ("waiting", "forming", "running") else 0
            quotes += re.findall("`([^`]+)`", cells[column]) if cells[column].startswith("`") else []
        self.assertGreater(len(quotes), 40)
        fragments = [f.strip() for quote in quotes if quote not in FOREIGN for f in quote.split("…")]
        self.assertEqual([f for f in fragments if not any(f in text for text in texts)], [])

    def test_commands_and_their_flags_are_there(self):
        commands = re.findall(r"`lockstepctl ([a-z]+(?: [a-z]+)?)((?: [A-Z]+)*(?: --[a-z-]+)*)`", RUNBOOK.read_text())
        self.assertGreater(len(commands), 10)
        for words, flags in set(commands):
            result = subprocess.run([CTL, *words.split(), "--help"], capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, f"lockstepctl {words}: {result.stderr}")
            # Of a word that is no command the help is that of what stands before it.
            self.assertIn(f"Usage: lockstepctl {words} [", result.stdout)
            for flag in re.findall("--[a-z-]+", flags):
                self.assertIn(flag, result.stdout)

    def test_links_lead_somewhere(self):
        for link in re.findall(r"\]\(([^)#]+)\)", RUNBOOK.read_text()):
            self.assertTrue((TREE / "deploy" / link).exists(), link)


if __name__ == "__main__":
    unittest.main()
