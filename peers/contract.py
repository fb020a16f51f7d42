"""Schemathesis' check that calls which fit the document are accepted, but for what no schema can tell.

It stands for positive_data_acceptance, which would take a 400 for a fault whatever its words are.
"""

import re
from pathlib import Path

import schemathesis
import yaml
from schemathesis.specs.openapi.checks import positive_data_acceptance

# What a call must know that no schema tells: what was answered before, names that are made of other names, texts of which
# white space does not count, and what is there to be fetched.
OF_THIS_API = (
    r"`cursor` must be the `next_cursor` of an earlier page",
    r"the header X-Resource-Version must be one that an earlier answer had",
    r"a name is needed; .* leaves none once only letters, digits and hyphens are kept",
    r"is longer than \d+ characters",
    r"must not end with .*, which another track of an agent uses",
    # A rule of the agent that its canary breaks once it is promoted.
    r"^canary\.overrides\.access: a gateway does not reach an agent whose access is platform$",
    r"^dataset_name: there is no dataset ",
    r"^dataset_name: dataset .* is for agent ",
    r"^cases: must have at most \d+ bytes as JSON together",
    r"is there twice, in `config` and beside it, with different values",
    r"`name` and `path` stand in the body, beside `source`",
    r"has 0 characters; it needs",
    r"^source: ",
    r"; a platform admin allows it in the Team or, for all teams, in the chart's values$",
    r"is no path; it should be relative",
    r"must be a folder's path such as",
    r"^tools\[\d+\]: ",
    r"^tools: must have at most \d+ bytes as JSON together",
    r"^capabilities: (must have tools|\w+ is there twice)",
    r"^model_(type|id): ",
    r"^name: must not be empty$",
    r"^the zip archive cannot be used: ",
    r"^trace_id: it is needed, unless message_id says",
    r"^value: must be from \d to \d on this scale",
    r"must have \d+ to \d+ bytes, and no control characters",
    r"^comment: must have at most \d+ bytes, and no U\+0000",
    # Which keys go together, and what is in them.
    r"^credentials(\.\w+(\.json)?)?: ",
)


def plain(text):
    """Fields are told as callers spell them, kinds name them in camelCase."""
    return text.replace("_", "").lower()


def messages(node):
    """The words of all rules that compare fields, which schemas of OpenAPI cannot hold."""
    if isinstance(node, dict):
        for rule in node.get("x-kubernetes-validations", ()):
            yield plain(rule["message"])
        node = list(node.values())
    for part in node if isinstance(node, list) else ():
        yield from messages(part)


CRDS = (Path(__file__).parent.parent / "crds").glob("*.yaml")
RULES = {message for crd in CRDS for message in messages(yaml.safe_load(crd.read_text()))}


def no_schema_tells(words, case):
    # Schemathesis writes this header by rules of its own, and takes an empty one for one that fits.
    if words.startswith("the header If-Match must be ") and case.headers["If-Match"] == "":
        return True
    return any(rule in plain(words) for rule in RULES) or any(re.search(known, words) for known in OF_THIS_API)


@schemathesis.check
def what_fits_is_accepted(ctx, response, case):
    # A quality gate stays shut for who has not the credential of a namespace, whatever is asked.
    if response.status_code == 412 and case.operation.path.startswith("/webhooks/canary-gate"):
        return None
    if response.status_code == 400 and no_schema_tells(response.json()["message"], case):
        return None
    return positive_data_acceptance(ctx, response, case)
