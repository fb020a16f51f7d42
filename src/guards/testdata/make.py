#!/usr/bin/env python3
"""Makes the labelled sets from public packages and splits them by a hash of each text.

    python3 -m venv venv && venv/bin/pip install pyyaml faker==40.54.0 rstr==3.2.2
    venv/bin/python make.py FOLDER

FOLDER holds, unpacked, the packages that SOURCES.md names. Texts are stored in base64, so that no
scanner takes an invented secret for a real one and no reader takes an injection for an instruction.
Nothing here depends on our patterns: no text is chosen or left out because of what a guard says.
"""

import base64
import csv
import glob
import hashlib
import json
import random
import re
import sys
from pathlib import Path

import faker
import rstr
import yaml

ROOT = Path(sys.argv[1])
HERE = Path(__file__).parent
LONGEST = 2000


def folder(prefix):
    return Path(sorted(glob.glob(f"{ROOT}/**/{prefix}*", recursive=True))[0])


def below(number, *key):
    """A number that depends on the key alone."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, key)).encode()).digest()[:4], "big") % number


def some(rows, number, source):
    """At most `number` of the rows, in the order of their hashes."""
    unique = sorted(set(rows), key=lambda text: hashlib.sha256(f"{source}/{text}".encode()).digest())
    return unique[:number]


def write(guard, rows):
    """rows: (text, source, labels); the first of equal texts counts."""
    halves = {"dev": {}, "held-out": {}}
    for text, source, labels in rows:
        text = text.strip("\n") if not labels.get("spans") else text
        if not text.strip() or len(text) > LONGEST:
            continue
        half = "dev" if hashlib.sha256(text.encode()).digest()[0] % 2 == 0 else "held-out"
        line = {"text": base64.b64encode(text.encode()).decode(), "source": source, **labels}
        halves[half].setdefault(text, json.dumps(line))
    (HERE / guard).mkdir(exist_ok=True)
    for half, lines in halves.items():
        (HERE / guard / f"{half}.jsonl").write_text("\n".join(sorted(lines.values())) + "\n")
        print(guard, half, len(lines))


# --- personal data -------------------------------------------------------------------------------------

KINDS = {
    "EMAIL_ADDRESS": "email", "PHONE_NUMBER": "phone", "IBAN_CODE": "iban", "CREDIT_CARD": "credit-card",
    "US_SSN": "us-ssn", "IP_ADDRESS": "ipv4",
}
LOCALES = [
    "en_US", "en_GB", "de_DE", "fr_FR", "es_ES", "it_IT", "nl_NL", "pl_PL", "pt_BR", "sv_SE", "cs_CZ", "fi_FI",
    "da_DK", "no_NO", "tr_TR", "ja_JP", "en_IN", "en_AU", "en_CA", "de_CH",
]


def spans(found):
    return {"spans": [{"kind": kind, "start": start, "end": end} for kind, start, end in found]}


def presidio():
    for sample in json.loads((folder("presidio_evaluator-0") / "data/synth_dataset_v2.json").read_text()):
        text = sample["full_text"]
        found = [(KINDS[s["entity_type"]], s["start_position"], s["end_position"]) for s in sample["spans"] if s["entity_type"] in KINDS]
        # Our spans are bytes of UTF-8.
        byte = lambda at: len(text[:at].encode())
        yield text, "presidio-evaluator", spans([(kind, byte(start), byte(end)) for kind, start, end in found])


def faked():
    """The templates of presidio-evaluator, filled by Faker in twenty locales."""
    templates = (folder("presidio_evaluator-0") / "presidio_evaluator/data_generator/raw_data/templates.txt").read_text().split("\n")
    values = {
        "email": ("email", lambda f: f.email()),
        "phone_number": ("phone", lambda f: f.phone_number()),
        "iban": ("iban", lambda f: f.iban()),
        "credit_card_number": ("credit-card", lambda f: f.credit_card_number()),
        "ssn": ("us-ssn", None),
        "ip_address": ("ipv4", None),
    }
    wanted = [t for t in templates if any("{{" + key + "}}" in t for key in values)]
    american = faker.Faker("en_US")
    american.seed_instance(7)
    for locale in LOCALES:
        fake = faker.Faker(locale)
        fake.seed_instance(below(2**32, locale))
        for number in range(40):
            template = wanted[(number * 7 + below(1000, locale)) % len(wanted)]
            text, found = "", []
            for part in re.split(r"({{\w+}})", template):
                key = part[2:-2] if part.startswith("{{") else None
                if key is None:
                    text += part.replace("\\n", "\n")
                    continue
                start = len(text.encode())
                if key == "ip_address":
                    kind, value = ("ipv6", american.ipv6()) if number % 2 else ("ipv4", american.ipv4())
                elif key == "ssn":
                    kind, value = "us-ssn", american.ssn()
                elif key in values:
                    kind, value = values[key][0], values[key][1](fake)
                else:
                    kind, value = None, fill(fake, key)
                text += value
                if kind:
                    found.append((kind, start, len(text.encode())))
            yield text, "presidio templates, Faker values", spans(found)


def fill(fake, key):
    known = {
        "person": fake.name, "organization": fake.company, "address": lambda: fake.address().replace("\n", ", "), "age": lambda: str(fake.random_int(1, 99)),
        "zipcode": fake.postcode, "street_name": fake.street_name, "year": fake.year, "nationality": fake.country,
        "url": fake.url, "job": fake.job, "date_of_birth": lambda: str(fake.date()), "date_time": lambda: str(fake.date_time()),
        "secondary_address": fake.building_number, "us_driver_license": fake.license_plate,
    }
    make = known.get(key) or getattr(fake, key, None) or fake.word
    try:
        return str(make())
    except Exception:
        return fake.word()


# --- secrets -------------------------------------------------------------------------------------------


def secrets():
    tests = folder("ripsecrets-0") / "test"
    for file in sorted((tests / "one_per_line").iterdir()):
        for line in file.read_text().splitlines():
            yield line, "ripsecrets", {"secret": True, "about": file.name}
    yield (tests / "one_per_file/private_key").read_text()[:1500], "ripsecrets", {"secret": True, "about": "private_key"}
    for line in (tests / "none").read_text().splitlines():
        yield line, "ripsecrets", {"secret": False}
    for version in ("2", "3"):
        rules = folder(f"kingfisher-rules-{version}")
        for file in sorted(rules.glob("src/fixtures/kingfisher/*.yml")) + [rules / "generated/rules/kingfisher.yml"]:
            for rule in (yaml.safe_load(file.read_text())["rules"] if file.exists() else []):
                for example in rule.get("examples") or []:
                    yield example, "kingfisher-rules", {"secret": True, "about": rule["id"]}
                for example in rule.get("negative_examples") or []:
                    yield example, "kingfisher-rules", {"secret": False, "about": rule["id"]}


def generated_secrets():
    """Texts that the patterns of betterleaks (as kingfisher-rules ships them) describe; the text is a generator's, not ours."""
    rules = yaml.safe_load((folder("kingfisher-rules-3") / "generated/rules/betterleaks.yml").read_text())["rules"]
    for rule in rules:
        pattern = re.sub(r"\(\?[a-z-]*[a-z]\)", "", rule["pattern"].strip())
        pattern = re.sub(r"\(\?[a-z-]+:", "(?:", pattern).replace("(?P<", "(?P<").replace("\\z", "$").replace("\\x60", "`")
        for number in range(2):
            random_source = random.Random(below(2**32, rule["id"], number))
            try:
                text = rstr.Rstr(random_source).xeger(pattern)
            except Exception:
                break
            text = "".join(c for c in text if c.isprintable() or c == "\n").strip()
            yield text, "betterleaks patterns, rstr texts", {"secret": True, "about": rule["id"]}


def code_lines():
    """Lines that speak of keys and passwords, and lines with hashes, in the sources of packages: taken to hold no secret."""
    lines = []
    for prefix in ("pyrit-1", "garak-0", "inspect_evals-0"):
        for file in sorted(folder(prefix).glob("**/*.py")):
            for line in file.read_text(errors="replace").splitlines():
                if re.search(r"(?i)passw|secret|token|api.?key|credential|[0-9a-f]{32}", line) and 20 < len(line.strip()) < 300:
                    lines.append(line.strip())
    for line in some(lines, 900, "code"):
        yield line, "sources of pyrit, garak, inspect-evals", {"secret": False}


# --- injections ----------------------------------------------------------------------------------------


def injections():
    for line in (folder("bastioncorpus-0") / "bastioncorpus/corpus/injections.jsonl").read_text().splitlines():
        if line.strip():
            row = json.loads(line)
            yield row["text"], "bastioncorpus", {"injection": row["label"] == "malicious", "about": row["category"], "language": row["lang"]}
    for row in json.loads((folder("jailbreak_corpus_mini_py-0") / "jailbreak_corpus_mini/corpus.json").read_text()):
        yield row["prompt"], "jailbreak-corpus-mini-py", {"injection": True, "about": row["category"]}
    datasets = folder("pyrit-1") / "pyrit/datasets"
    for file in sorted((datasets / "jailbreak/templates").glob("**/*.yaml")):
        template = yaml.safe_load(file.read_text()).get("value") or ""
        yield re.sub(r"{{.*?}}", "", template, flags=re.S), "pyrit jailbreak templates", {"injection": True, "about": "jailbreak"}
    for family, prompts in json.loads((folder("garak-0") / "garak/data/sysprompt_extraction/attacks.json").read_text()).items():
        for prompt in prompts:
            yield prompt, "garak sysprompt_extraction", {"injection": True, "about": family}
    wild = json.loads((folder("garak-0") / "garak/data/inthewild_jailbreak_llms.json").read_text())
    wild = [text for text in wild if len(text) <= LONGEST and not UNFIT.search(text)]
    for text in some(wild, 160, "wild"):
        yield text, "garak inthewild_jailbreak_llms", {"injection": True, "about": "jailbreak"}
    for file in sorted((folder("inspect_evals-0") / "inspect_evals/agent_threat_bench/data").glob("*hijack.json")):
        for task in json.loads(file.read_text()):
            for at, mail in enumerate(task.get("inbox", [])):
                attack = at in task["attack_email_indices"]
                yield mail["subject"] + "\n" + mail["body"], "inspect-evals agent_threat_bench", {"injection": attack, "about": "mail"}


UNFIT = re.compile(r"(?i)sex|porn|nsfw|rape|child|minor|nigg|fag|loli|cunt|slut")


def harmless():
    """Questions to assistants, mail, documents and manuals."""
    dojo = folder("agentdojo-0") / "agentdojo"
    for file in sorted(dojo.glob("default_suites/v1/*/user_tasks.py")):
        for found in re.finditer(r'PROMPT = \(?\s*((?:f?"[^"\n]*"\s*)+)', file.read_text()):
            text = " ".join(re.findall(r'"([^"\n]*)"', found[1]))
            if "{" not in text:
                yield text, "agentdojo user tasks"
    for file in sorted(dojo.glob("data/suites/**/*.yaml")):
        for found in re.finditer(r'(?:body|content|description): "((?:[^"\\]|\\.)*)"', file.read_text()):
            text = found[1].encode().decode("unicode_escape", errors="replace")
            if "{" not in text:
                yield text, "agentdojo environments"
    for sample in json.loads((folder("presidio_evaluator-0") / "data/synth_dataset_v2.json").read_text())[:400]:
        yield sample["full_text"], "presidio-evaluator"
    manuals = folder("inspect_evals-0") / "inspect_evals/tau2/data/domains"
    paragraphs = []
    for file in sorted(manuals.glob("**/*.md")) + sorted(manuals.glob("**/*.txt")):
        paragraphs += [p.strip() for p in file.read_text(errors="replace").split("\n\n") if 80 < len(p) <= LONGEST]
    for text in some(paragraphs, 250, "manuals"):
        yield text, "inspect-evals tau2 manuals"
    for row in csv.DictReader((folder("pyrit-1") / "pyrit/datasets/scorer_evals/sample/mini_refusal.csv").read_text().splitlines()[1:]):
        yield row["objective"], "pyrit mini_refusal"


# --- topics --------------------------------------------------------------------------------------------


def topics():
    evals = folder("pyrit-1") / "pyrit/datasets/scorer_evals"
    files = {"violence": "violence", "violence_multi_score": "violence", "self_harm": "self_harm", "illegal_activity": "illegal_activity"}
    for file in sorted(evals.glob("*/*.csv")):
        if file.stem in files:
            rows = list(csv.reader(file.read_text(errors="replace").splitlines(keepends=True)))[1:]
            at = rows[0].index("objective")
            for row in rows[1:]:
                if len(row) > at:
                    yield row[at], "pyrit scorer_evals", {"topic": files[file.stem]}
    local = folder("pyrit-1") / "pyrit/datasets/seed_datasets/local"
    for seed in yaml.safe_load((local / "adv_bench.prompt").read_text())["seeds"]:
        yield seed["value"], "pyrit adv_bench", {"topic": "illegal_activity"}


write("pii", [*presidio(), *faked()])
write("secrets", [*secrets(), *generated_secrets(), *code_lines()])
write("injection", [*injections(), *((text, source, {"injection": False}) for text, source in harmless())])
write("topics", [*topics(), *((text, source, {"topic": None}) for text, source in harmless())])
