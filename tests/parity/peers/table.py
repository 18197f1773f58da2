"""Tables as aligned text and as Markdown."""
import textwrap

WIDTH = 34  # of a column of answers, in text


def as_text(header, rows):
    """Columns side by side; long cells go on in further lines."""
    widths = [min(WIDTH, max(len(row[i]) for row in [header, *rows])) for i in range(len(header))]
    lines = []
    for row in [header, ["-" * width for width in widths], *rows]:
        cells = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, widths)]
        for i in range(max(map(len, cells))):
            parts = [cell[i] if i < len(cell) else "" for cell in cells]
            lines.append("  ".join(part.ljust(width) for part, width in zip(parts, widths)).rstrip())
    return "\n".join(lines) + "\n"


def as_markdown(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in escaped)
