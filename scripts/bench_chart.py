"""Charts of what scripts/bench has measured, as SVG files, drawn without another program.

ratios() draws a bar for each workload, curves() the transfer mechanisms over message sizes, logarithmic()
what spans several powers of ten.
"""

import html
import math

COLOURS = ("#777777", "#1b6ca8", "#c0392b", "#2e8b57", "#8e5ea2", "#e08214")
HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
    'height="{height}" font-family="sans-serif" font-size="13">\n'
    '<rect width="100%" height="100%" fill="white"/>\n'
)


def text(x, y, words, anchor="start", size=13, weight="normal"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}">'
        f"{html.escape(words)}</text>\n"
    )


def rule(x1, y1, x2, y2, colour="#dddddd", width=1, dashes=""):
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width}"{dashed}/>\n'
    )


def write(path, width, height, parts):
    path.write_text(HEAD.format(width=width, height=height) + "".join(parts) + "</svg>\n")


def legend(curves_shown, colours):
    for number, (curve, colour) in enumerate(zip(curves_shown, colours)):
        x = 20 + 130 * number
        yield rule(x, 48, x + 30, 48, colour, 3) + text(x + 36, 52, curve)


def curve_through(places, colour):
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2.5"/>\n'


def ratios(results, path):
    """Draws what scripts/bench --json prints: for each workload with a ratio, how many times as fast
    as TCP it is over SDP. A bar to the right of the line is faster than TCP."""
    rows = [
        (one["workload"], one["times"])
        for one in results
        if one["target_is"] == "ratio" and one["beside"] == "tcp"
    ]
    left, right, top, step = 330, 760, 60, 26
    height = top + step * len(rows) + 30
    powers = [math.log2(times) for _, times in rows]
    least, most = min(-1.0, *powers), max(1.0, *powers)
    unit = (right - left) / (most - least)
    middle = left - least * unit
    title = f"Speed with SDP on one host, beside TCP with {results[0]['congestion']}"
    parts = [text(20, 28, title, size=16, weight="bold")]
    for exponent in range(math.ceil(least), math.floor(most) + 1):
        x = middle + exponent * unit
        label = f"{2**exponent} x" if exponent > 0 else f"1/{2**-exponent}" if exponent else "as TCP"
        parts.append(rule(x, top - 8, x, height - 24, "#dddddd" if exponent else "#444444"))
        parts.append(text(x, height - 8, label, "middle", 12))
    for number, (name, times) in enumerate(rows):
        y, end = top + step * number, middle + math.log2(times) * unit
        colour = COLOURS[1] if times >= 1 else COLOURS[2]
        box = f'x="{min(middle, end):.1f}" y="{y}" width="{abs(end - middle):.1f}" height="{step - 10}"'
        parts.append(f'<rect {box} fill="{colour}"/>\n')
        parts.append(text(left - 10, y + 12, name, "end"))
        parts.append(text(right + 20, y + 12, f"{times:.2f}"))
    write(path, 840, height, parts)


def curves(path, title, panels, names):
    """`panels`: (heading, {curve: {x: y}}) in rows of two, all over the same x, of which names(x) is the
    label; y is a multiple of TCP's, which is the dashed line at 1."""
    width, height, wide, high, most_y = 1300, 340, 480, 230, 3.0
    xs = sorted({x for _, lines in panels for points in lines.values() for x in points})
    low, span = math.log2(xs[0]), max(1.0, math.log2(xs[-1]) - math.log2(xs[0]))
    curves_shown = list(dict.fromkeys(curve for _, lines in panels for curve in lines))
    parts = [text(20, 28, title, size=16, weight="bold")]
    parts += legend(curves_shown, COLOURS[1:])
    for number, (heading, lines) in enumerate(panels):
        left, top = 60 + 640 * (number % 2), 100 + height * (number // 2)

        def place(x, y, left=left, top=top):
            return left + wide * (math.log2(x) - low) / span, top + high * (1 - min(y, most_y) / most_y)

        parts.append(text(left, top - 14, heading, size=14))
        for y in (0, 0.5, 1, 1.5, 2, 2.5, 3):
            _, at = place(xs[0], y)
            style = ("#444444", 1, "4 3") if y == 1 else ()
            parts.append(rule(left, at, left + wide, at, *style))
            parts.append(text(left - 8, at + 4, f"{y:g}", "end", 11))
        for x in xs:
            parts.append(text(place(x, 0)[0], top + high + 18, names(x), "middle", 10))
        for curve, points in lines.items():
            colour = COLOURS[1 + curves_shown.index(curve)]
            parts.append(curve_through([place(x, y) for x, y in sorted(points.items())], colour))
    write(path, width, 100 + height * ((len(panels) + 1) // 2), parts)


def logarithmic(path, title, panels, names):
    """`panels`: (heading, {curve: {x: y}}) side by side, each with an x axis of its own, of which names(x) is
    the label. Both axes are logarithmic; a line is drawn at each power of ten of y that a panel spans."""
    wide, high, top = 540, 380, 100
    curves_shown = list(dict.fromkeys(curve for _, lines in panels for curve in lines))
    parts = [text(20, 28, title, size=16, weight="bold"), *legend(curves_shown, COLOURS)]
    for number, (heading, lines) in enumerate(panels):
        left = 70 + (wide + 90) * number
        xs = sorted({x for points in lines.values() for x in points})
        ys = [y for points in lines.values() for y in points.values()]
        least, most = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))
        most = max(most, least + 1)
        span = max(1.0, math.log2(xs[-1] / xs[0]))

        def place(x, y, left=left, first=xs[0], span=span, least=least, most=most):
            across, up = math.log2(x / first) / span, (math.log10(y) - least) / (most - least)
            return left + wide * across, top + high * (1 - up)

        parts.append(text(left, top - 14, heading, size=14))
        for power in range(least, most + 1):
            _, at = place(xs[0], 10.0**power)
            parts.append(rule(left, at, left + wide, at))
            parts.append(text(left - 8, at + 4, f"{10.0**power:g}", "end", 11))
        for x in xs:
            parts.append(text(place(x, 1)[0], top + high + 18, names(x), "middle", 10))
        for curve, points in lines.items():
            colour = COLOURS[curves_shown.index(curve)]
            parts.append(curve_through([place(x, y) for x, y in sorted(points.items())], colour))
    write(path, 30 + (wide + 90) * len(panels), top + high + 40, parts)
