"""scripts/bench_chart draws well-formed SVG: what is faster than TCP to the right, a line for each curve."""
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

import bench_chart  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def result(name, ratio, better, target_is="ratio"):
    return {"workload": name, "ratio": ratio, "better": better, "target_is": target_is, "congestion": "cubic"}


class BenchChart(unittest.TestCase):
    def drawn(self, draw, *arguments):
        with tempfile.TemporaryDirectory(prefix="sdp-chart-") as directory:
            path = pathlib.Path(directory) / "chart.svg"
            draw(path, *arguments)
            return xml.etree.ElementTree.parse(path).getroot()

    def test_bars_go_to_the_side_of_what_is_faster(self):
        results = [
            result("twice <as> fast", 2.0, "more"),
            result("twice as slow", 2.0, "less"),
            result("as fast", 1.0, "more"),
            result("memory", 0.5, "less", "absolute"),
        ]
        chart = self.drawn(lambda path: bench_chart.ratios(results, path))
        _, *bars = ((r.get("x"), r.get("width")) for r in chart.iter(SVG + "rect"))
        (fast, wide), (slow, as_wide), (_, none) = [(float(x), float(w)) for x, w in bars]
        self.assertAlmostEqual(slow + as_wide, fast)
        self.assertEqual((wide, none), (as_wide, 0.0))
        words = [text.text for text in chart.iter(SVG + "text")]
        self.assertIn("twice <as> fast", words)
        self.assertIn("0.50", words)
        self.assertNotIn("memory", words)
        self.assertIn("cubic", words[0])

    def test_curves_stay_in_their_panel(self):
        panels = [
            ("rate", {"bcopy": {1: 0.5, 4: 1.0, 16: 9.0}}),
            ("time", {"bcopy": {1: 1.0, 4: 1.0, 16: 1.0}}),
        ]
        chart = self.drawn(bench_chart.curves, "title", panels, str)
        first, second = (line.get("points").split() for line in chart.iter(SVG + "polyline"))
        self.assertEqual(len(first), 3)
        heights = [float(point.split(",")[1]) for point in first]
        self.assertEqual(heights, sorted(heights, reverse=True))
        self.assertGreaterEqual(heights[-1], 100.0)  # what is beyond the panel ends at its edge
        self.assertEqual(len({point.split(",")[1] for point in second}), 1)


if __name__ == "__main__":
    unittest.main()
