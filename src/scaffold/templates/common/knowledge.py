"""Searches the agent's knowledge bases by words, as a tool that the model calls. The platform gives them in RUNTIME_KNOWLEDGE_BASES.

The platform's own image searches by meaning, too, for which the model that made the vectors is needed.
"""

import json

from slipway_contract import ToolFault

RESULTS = 5
CONNECT_SECONDS = 5
STATEMENT_MS = 10_000
RESULT_BYTES = 32 * 1024
SETTINGS = "SELECT set_config('slipway.team', %s, true), set_config('statement_timeout', %s, true)"
SEARCH = "SELECT content, filename, uri, page FROM slipway.search(%s, %s, NULL, %s, NULL, NULL, NULL, NULL)"


def tools(settings):
    """One tool for all knowledge bases; none of an agent without any."""
    bases = json.loads(settings.variables.get("RUNTIME_KNOWLEDGE_BASES") or "[]")
    return [Knowledge(bases, settings.variables)] if bases else []


class Knowledge:
    name, changes_nothing, tells_sources = "search_knowledge", True, True

    def __init__(self, bases, variables):
        self.bases, self.password = bases, variables.get("RUNTIME_DATABASE_PASSWORD")
        self.sslmode, self.team = variables.get("PGSSLMODE"), variables.get("RUNTIME_TEAM") or "default"
        about = "; ".join(f"{base['name']}: {base.get('description') or 'documents'}" for base in bases)
        self.description = f"Finds passages of documents by their words. Documents: {about}"[:1024]
        query = {"type": "string", "description": "Words that the passages have."}
        self.schema = {"type": "object", "properties": {"query": query}, "required": ["query"], "additionalProperties": False}

    def call(self, arguments):
        query = arguments.get("query")
        if not isinstance(query, str) or not query.strip() or "\0" in query:
            raise ToolFault("query: is required, as a text")
        found = [passage for base in self.bases for passage in self.search(base, query[:1000])]
        texts = "\n\n".join(f"[{place}]\n{source['content']}" for place, source in found)
        return texts[:RESULT_BYTES] or "Nothing was found.", [source for _, source in found]

    def search(self, base, query):
        import psycopg

        given = {"connect_timeout": CONNECT_SECONDS}
        if self.password:
            given["password"] = self.password
        if self.sslmode:
            given["sslmode"] = self.sslmode
        try:
            # One transaction: poolers keep no settings of a session.
            with psycopg.connect(base["connection_url"], **given) as connection:
                connection.execute(SETTINGS, (self.team, str(STATEMENT_MS)))
                rows = connection.execute(SEARCH, (base["kb_id"], query, RESULTS)).fetchall()
        except psycopg.Error as error:
            raise ToolFault(f"the knowledge base {base['kb_id']} does not answer: {type(error).__name__}") from None
        return [passage(base["kb_id"], *row) for row in rows]


def passage(kb_id, content, filename, uri, page):
    """Where it stands, for the model; and as the event `sources` tells it."""
    told = {"content": content, "source": uri or filename, "filename": filename, "page": page, "kb_id": kb_id}
    place = f"{filename or uri}{f', page {page}' if page else ''}"
    return place, {name: value for name, value in told.items() if value is not None}
