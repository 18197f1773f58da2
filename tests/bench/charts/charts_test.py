"""The charts of small reports: what is in them, and what is refused."""
import json
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

HERE = Path("tests/bench/charts")
sys.path.insert(0, str(HERE))

import charts  # noqa: E402

RATIOS = [HERE / "testdata/ratios_2.json", HERE / "testdata/ratios_4.json"]
COST = HERE / "testdata/cost.json"


def texts_of(path):
    """All texts of a valid SVG."""
    root = ElementTree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg", root.tag
    return ["".join(text.itertext()).strip()
            for text in root.iter("{http://www.w3.org/2000/svg}text")]


class Charts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name)

    def draw(self, *paths):
        return charts.draw_all(paths, self.out / "out")

    def write(self, name, report):
        path = self.out / name
        path.write_text(json.dumps(report))
        return path

    def test_each_kind_of_report_gives_its_chart(self):
        self.assertEqual([p.name for p in self.draw(*RATIOS, COST)], ["ratios.svg", "cost.svg"])
        self.assertEqual([p.name for p in self.draw(COST)], ["cost.svg"])
        self.assertEqual([p.name for p in self.draw(RATIOS[0])], ["ratios.svg"])

    def test_ratios_are_drawn_by_case_and_ranks_and_only_of_peers(self):
        texts = texts_of(self.draw(*RATIOS)[0])
        for expected in ["2 ranks, shm", "4 ranks, shm", "step: DDP + ZeRO, fused", "1.20",
                         "training: DDP + ZeRO, fused", "9.50", "12.4"]:
            self.assertIn(expected, texts)
        self.assertTrue(any("peer's time" in text for text in texts))
        self.assertNotIn("0.61", texts)  # of the bandwidth probe
        self.assertNotIn("step: fairscale", texts)  # not measured

    def test_costs_are_drawn_with_units_and_a_line_for_each_number_of_ranks(self):
        texts = texts_of(self.draw(COST)[0])
        for expected in ["1 rank", "2 ranks", "bandwidth probe", "1 M", "4 M",
                         "parameters (float32 elements)", "time of one AdamW step (median, ms)"]:
            self.assertIn(expected, texts)

    def test_costs_are_lines_by_size_whatever_their_order_in_the_report(self):
        self.assertEqual(
            charts.collect_costs({"cost": charts.read_report(COST)}),
            {("bandwidth_probe", 1): [(1000000, 0.9), (4000000, 3.5)],
             ("step", 1): [(1000000, 1.5), (4000000, 6.1)],
             ("step", 2): [(1000000, 1.1), (4000000, 4.2)]})

    def test_equal_reports_give_equal_bytes(self):
        first = [path.read_bytes() for path in self.draw(*RATIOS, COST)]
        again = [path.read_bytes() for path in self.draw(*RATIOS, COST)]
        self.assertEqual(first, again)
        for chart in first:
            self.assertNotIn(b"dc:date", chart)

    def test_shared_memory_comes_first(self):
        reports = {t: {"results": [], "transport": t, "ranks": 2, "ratios": {"zero": 2}}
                   for t in ("gloo", "shm")}
        self.assertEqual(list(charts.collect_ratios(reports)), [("shm", 2), ("gloo", 2)])

    def test_two_reports_of_the_same_are_refused(self):
        with self.assertRaisesRegex(charts.ChartError, "both have zero_fused over shm at 2 ranks"):
            self.draw(RATIOS[0], self.write("again.json", json.loads(RATIOS[0].read_text())))
        with self.assertRaisesRegex(charts.ChartError, "repeats .* at 1 rank;"):
            self.draw(COST, self.write("again.json", json.loads(COST.read_text())))

    def test_what_is_no_report_is_refused_by_name(self):
        for name, text in [("absent.json", None), ("torn.json", "{"), ("list.json", "[]"),
                           ("other.json", "{}")]:
            if text is not None:
                (self.out / name).write_text(text)
            with self.assertRaisesRegex(charts.ChartError, name):
                self.draw(self.out / name)

    def test_a_report_without_anything_to_draw_is_refused(self):
        report = {"results": [], "transport": "shm", "ranks": 2, "ratios": {"agree_share": 0.001}}
        with self.assertRaisesRegex(charts.ChartError, "nothing to draw"):
            self.draw(self.write("agree.json", report))


if __name__ == "__main__":
    unittest.main()
