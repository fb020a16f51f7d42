"""Reads canonical YAML with PyYAML, and compares with the JSON of the same name."""

import json
import pathlib
import sys

import yaml


def same(one, other):
    """Equal, and of the same types all the way down: 1 is neither True nor 1.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


folder = pathlib.Path(sys.argv[1])
files = sorted(folder.glob("*.yaml"))
for file in files:
    read = yaml.safe_load(file.read_bytes())
    written = json.loads(file.with_suffix(".json").read_bytes())
    if not same(read, written):
        sys.exit(f"{file}: read as {read!r}, and is {written!r}:\n{file.read_text()}")
print(len(files))
