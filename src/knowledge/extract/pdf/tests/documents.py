"""Makes PDF with ReportLab, and says what is in it: documents.py KIND FOLDER. Tables go to tables-N.pdf and tables-N.json, N
being the seed. The reader was written with those below 24 at hand, and mended with the others. In some of them cells are printed over
each other, as ReportLab gives a table no more width than the page has."""

import json
import random
import sys
from pathlib import Path
from xml.sax.saxutils import escape

from reportlab.lib import colors
from reportlab.lib.pagesizes import A4, LETTER
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

WORDS = """account address amount archive average balance battery bridge budget cable capital carbon center channel charge
client closed copper current customer daily delivery density depth device display district engine export factor field
filter forest garden global harbor height import income index island journal kernel ladder market meter mineral module
monthly motor network number office orange output packet paper partner pattern period planet plastic policy port power
premium price process profit quality quarter ratio region report reserve revenue river sample sector serial service
signal silver source spare station status steel storage summary surface system target temperature tension timber total
traffic transfer turbine unit update value vector vessel volume voltage warehouse weight winter yellow zone""".split()

STYLES = getSampleStyleSheet()
RULES = {
    "grid": [("GRID", (0, 0), (-1, -1), 0.5, colors.black)],
    "lines": [("LINEABOVE", (0, 0), (-1, 0), 1, colors.black), ("LINEBELOW", (0, 0), (-1, 0), 0.5, colors.black), ("LINEBELOW", (0, -1), (-1, -1), 1, colors.black)],
    "none": [],
    "shaded": [("BACKGROUND", (0, 0), (-1, 0), colors.lightgrey), ("ROWBACKGROUNDS", (0, 1), (-1, -1), [colors.white, colors.whitesmoke])],
}


def words(dice, least, most):
    return " ".join(dice.choice(WORDS) for _ in range(dice.randint(least, most)))


def cell(dice, kind):
    if kind == "number":
        return f"{dice.randint(0, 99999):,}"
    if kind == "price":
        return f"${dice.randint(0, 9999)}.{dice.randint(0, 99):02}"
    if kind == "date":
        return f"20{dice.randint(10, 26)}-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}"
    if kind == "code":
        return f"{dice.choice('ABCDEFGH')}-{dice.randint(100, 999)}"
    if kind == "long":
        return words(dice, 4, 16)
    if kind == "sparse":
        return words(dice, 1, 2) if dice.random() < 0.6 else ""
    return words(dice, 1, 3)


def table(dice):
    kinds = [dice.choice(["text", "code"])] + [dice.choice(["text", "number", "price", "date", "code", "sparse", "long"]) for _ in range(dice.randint(1, 5))]
    while kinds.count("long") > 2:
        kinds[kinds.index("long")] = "number"
    rows = [[words(dice, 1, 2).title() for _ in kinds]]
    rows += [[cell(dice, kind) for kind in kinds] for _ in range(dice.randint(3, 14))]
    style = RULES[dice.choice(list(RULES))] + [
        ("VALIGN", (0, 0), (-1, -1), dice.choice(["TOP", "MIDDLE"])),
        ("FONTSIZE", (0, 0), (-1, -1), dice.choice([8, 9, 10])),
        ("FONTNAME", (0, 0), (-1, 0), dice.choice(["Helvetica", "Helvetica-Bold", "Times-Bold"])),
    ]
    style += [("ALIGN", (at, 0), (at, -1), "RIGHT") for at, kind in enumerate(kinds) if kind in ("number", "price")]
    width = 120 if kinds.count("long") > 1 or len(kinds) > 4 else 170
    shown = [[Paragraph(escape(text), STYLES["BodyText"]) if kind == "long" and at else text for text, kind in zip(row, kinds)] for at, row in enumerate(rows)]
    made = Table(shown, colWidths=[width if kind == "long" else None for kind in kinds], style=TableStyle(style), repeatRows=1)
    return made, rows


def tables(folder):
    for number in range(48):
        dice = random.Random(number)
        story, truth = [Paragraph("Report of the " + words(dice, 2, 3), STYLES["Heading1"])], []
        for _ in range(dice.randint(1, 4)):
            story += [Paragraph(words(dice, 20, 60).capitalize() + ".", STYLES["BodyText"]), Spacer(1, 10)]
            made, rows = table(dice)
            truth.append(rows)
            story += [made, Spacer(1, 14), Paragraph(words(dice, 15, 50).capitalize() + ".", STYLES["BodyText"])]
        SimpleDocTemplate(str(folder / f"tables-{number}.pdf"), pagesize=dice.choice([A4, LETTER])).build(story)
        (folder / f"tables-{number}.json").write_text(json.dumps(truth))


def columns(folder):
    """Two columns of prose with a running header, a heading across and a word that a hyphen parts."""
    canvas = Canvas(str(folder / "columns.pdf"), pagesize=A4)
    for page in range(1, 7):
        canvas.setFont("Helvetica", 8)
        canvas.drawString(72, 810, "The Journal of Running Headers")
        canvas.drawRightString(523, 30, f"Page {page} of 6")
        canvas.setFont("Helvetica-Bold", 18)
        canvas.drawString(72, 770, f"Chapter number {page}")
        for column, left in (("left", 72), ("right", 310)):
            text = canvas.beginText(left, 740)
            text.setFont("Times-Roman", 10)
            for line in range(30):
                text.textLine(f"the {column} text on page {page} has line {line} and more exam-" if line % 2 == 0 else f"ple words of line {line} in the {column} column here")
            canvas.drawText(text)
        canvas.showPage()
    canvas.save()


def picture(folder):
    """A page of text, one that is nothing but the picture named, and one that is empty."""
    canvas = Canvas(str(folder / "picture.pdf"), pagesize=A4)
    canvas.drawString(72, 700, "This first page has text of its own, which is no picture and is read as it is.")
    canvas.showPage()
    canvas.drawImage(str(folder / "page.ppm"), 0, 0, *A4)
    canvas.showPage()
    canvas.showPage()
    canvas.save()


def encrypted(folder):
    for name, password in (("encrypted.pdf", "secret"), ("restricted.pdf", "")):
        canvas = Canvas(str(folder / name), encrypt=StandardEncryption(password, ownerPassword="owner", canCopy=0))
        canvas.drawString(72, 700, "Nobody reads this sentence without leave.")
        canvas.save()


def long(folder):
    """Ten thousand pages and one more."""
    for name, pages in (("long.pdf", 10_000), ("longer.pdf", 10_001)):
        canvas = Canvas(str(folder / name))
        for page in range(1, pages + 1):
            canvas.drawString(72, 400, f"The sentence of page number {page} is here.")
            canvas.showPage()
        canvas.save()


{"tables": tables, "columns": columns, "picture": picture, "encrypted": encrypted, "long": long}[sys.argv[1]](Path(sys.argv[2]))
