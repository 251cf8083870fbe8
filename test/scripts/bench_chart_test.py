"""scripts/bench_chart draws well-formed SVG: what is faster than TCP to the right, a line for each curve."""
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

import bench_chart  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def result(name, times, target_is="ratio", beside="tcp"):
    return {"workload": name, "times": times, "target_is": target_is, "beside": beside, "congestion": "cubic"}


class BenchChart(unittest.TestCase):
    def drawn(self, draw, *arguments):
        with tempfile.TemporaryDirectory(prefix="sdp-chart-") as directory:
            path = pathlib.Path(directory) / "chart.svg"
            draw(path, *arguments)
            return xml.etree.ElementTree.parse(path).getroot()

    def test_bars_go_to_the_side_of_what_is_faster(self):
        results = [
            result("twice <as> fast", 2.0),
            result("twice as slow", 0.5),
            result("as fast", 1.0),
            result("as fast", 7.0, beside="unix"),
            result("memory", 0.5, "absolute"),
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
        self.assertNotIn("7.00", words)
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

    def test_logarithmic_panels_have_axes_of_their_own(self):
        panels = [
            ("us", {"TCP": {1: 20.0, 16: 20.0, 256: 200.0}, "ring": {1: 0.2, 256: 2.0}}),
            ("GB/s", {"TCP": {64: 3.0, 4096: 7.0}}),
        ]
        chart = self.drawn(bench_chart.logarithmic, "title", panels, str)
        tcp, ring, other = (
            [tuple(map(float, point.split(","))) for point in line.get("points").split()]
            for line in chart.iter(SVG + "polyline")
        )
        self.assertEqual([len(tcp), len(ring), len(other)], [3, 2, 2])
        # A power of ten is as high everywhere, and a power of two as wide.
        self.assertAlmostEqual(tcp[0][1] - tcp[2][1], ring[0][1] - ring[1][1], delta=0.2)
        self.assertAlmostEqual(tcp[1][0] - tcp[0][0], tcp[2][0] - tcp[1][0], delta=0.2)
        self.assertEqual(tcp[0][0], ring[0][0])
        # The second panel stands beside the first, and begins at its own least size.
        self.assertGreater(other[0][0], tcp[2][0])
        self.assertAlmostEqual(other[1][0] - other[0][0], tcp[2][0] - tcp[0][0], delta=0.2)
        words = [text.text for text in chart.iter(SVG + "text")]
        for label in ("0.1", "1000", "1", "10", "64", "4096"):
            self.assertIn(label, words)
        self.assertNotIn("10000", words)


if __name__ == "__main__":
    unittest.main()
