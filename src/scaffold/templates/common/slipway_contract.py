"""Keeps Slipway's runtime contract: settings, HTTP, conversations, tools, shutdown. Only Python's standard library.

agent.py calls serve(answer). answer(turn) reads turn.system, turn.messages, turn.tools and turn.model, and calls turn.token(text) for
each fragment of the answer. Everything else is done here; nothing here depends on the framework. This file is version 1 of the scaffold.
"""

import base64
import json
import os
import queue
import re
import secrets
import signal
import socket
import socketserver
import sys
import threading
import time
import traceback
import urllib.error
import urllib.parse
import urllib.request
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BODY_BYTES = 1024 * 1024
DISCARDED_BYTES = 8 * BODY_BYTES
TOOL_OUTPUT_BYTES = 32 * 1024
CONNECTIONS = 256
TURNS = 64
CONVERSATIONS = 256
CONVERSATION_BYTES = 64 * 1024
CONVERSATION_MESSAGES = 64
TOKEN_BYTES = 4096
KEEP_ALIVE_SECONDS = 15
IDLE_SECONDS = 30
CANCEL_BEFORE_END_SECONDS = 3
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)

REASONS = {
    400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed", 409: "Conflict", 413: "Payload Too Large",
    415: "Unsupported Media Type", 421: "Misdirected Request", 500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable",
}  # fmt: skip
ENDPOINTS = {
    "/healthz": "GET", "/readyz": "GET", "/metrics": "GET", "/chat": "POST", "/chat/stream": "POST",
    "/v1/models": "GET", "/v1/chat/completions": "POST",
}  # fmt: skip
CAPABILITIES = ("streaming", "tools", "knowledge", "memory", "guardrails", "evaluation", "metrics", "ci")
PROJECT = Path(__file__).with_name("project.json")

# The stub and the tests' servers listen on loopback, where no proxy leads.
for no_proxy in ("no_proxy", "NO_PROXY"):
    os.environ[no_proxy] = ",".join(filter(None, (os.environ.get(no_proxy), "127.0.0.1")))


class Refused(Exception):
    """A request that is not answered: status, message, headers."""

    def __init__(self, status, message, **headers):
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers


class ModelFault(Exception):
    """The model cannot be asked. The message is shown to the caller, so it holds no key and no text of the conversation."""


class Cancelled(Exception):
    """The turn is over: its caller has left, its time is up, or the program ends."""


def log(level, message, **fields):
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    print(json.dumps({"timestamp": at, "level": level, "message": message, **fields}), file=sys.stderr, flush=True)


def end_with(faults):
    """Exit code 2 and one message with every fault, where the pod's status shows it."""
    text = "this agent cannot start:\n" + "".join(f"- {fault}\n" for fault in faults)
    sys.stderr.write(text)
    if os.path.exists("/dev/termination-log"):
        with open("/dev/termination-log", "w", encoding="utf-8") as file:
            file.write(text[:4096])
    sys.stderr.flush()
    # Threads of frameworks may never end.
    os._exit(2)


# Settings -------------------------------------------------------------------------------------------------------------------------


class Model:
    """Where the model is asked, by OpenAI's chat completions protocol, which all four providers speak."""

    def __init__(self, kind, model_id, variables):
        self.kind, self.id, self.stub = kind, model_id, None
        self.key_variable = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}.get(kind)
        # Where an integration names the server, the key beside it counts and no other goes there.
        given = variables.get("RUNTIME_MODEL_BASE_URL") if self.key_variable else None
        if given:
            self.key_variable = "RUNTIME_MODEL_API_KEY"
        self._key = variables.get(self.key_variable or "") or None
        bases = {
            "openai": given or variables.get("OPENAI_BASE_URL") or "https://api.openai.com/v1",
            "anthropic": (given or variables.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com").rstrip("/") + "/v1",
            "ollama": (variables.get("OLLAMA_BASE_URL") or "http://localhost:11434").rstrip("/") + "/v1",
        }
        self._base = bases.get(kind, "").rstrip("/")
        self._own_base = bool(given or variables.get(f"{kind.upper()}_BASE_URL"))

    @property
    def base_url(self):
        if self.kind == "stub":
            self.stub = self.stub or StubModel()
            return self.stub.base_url
        return self._base

    @property
    def key(self):
        # Servers of one's own often take no key; the SDKs want one all the same.
        if self._key is None and self.key_variable and not self._own_base:
            raise ModelFault(f"{self.key_variable} is not set; put it into a Secret of the agent, such as agent-env")
        return self._key or "none"


class Settings:
    """What the pod was given. `faults` has what cannot be done, each with the variable's name."""

    def __init__(self, variables=None):
        self.variables = variables = os.environ if variables is None else variables
        self.faults = []
        project = json.loads(PROJECT.read_text(encoding="utf-8")) if PROJECT.exists() else {}
        self.capabilities = set(project.get("capabilities", ["streaming"]))
        self.agent_id = variables.get("RUNTIME_AGENT_ID") or "ag_local"
        self.agent_name = variables.get("RUNTIME_AGENT_NAME") or project.get("slug", "agent")
        self.system = variables.get("RUNTIME_SYSTEM_PROMPT") or project.get("systemPrompt", "")
        self.port = self.number("RUNTIME_PORT", 8000, 0, 65535)
        self.shutdown_seconds = self.number("RUNTIME_SHUTDOWN_SECONDS", 25, 0, 3600)
        self.turn_seconds = self.number("RUNTIME_TURN_SECONDS", 300, 1, 86400)
        self.max_rounds = self.number("RUNTIME_MAX_ROUNDS", 10, 1, 1000)
        self.max_output_tokens = self.number("RUNTIME_MAX_OUTPUT_TOKENS", 0, 0, 10**9) or None
        kind = variables.get("RUNTIME_MODEL_TYPE") or project.get("modelType", "stub")
        default = {"stub": "stub-echo", "ollama": "llama3.2"}.get(kind, "")
        model_id = variables.get("RUNTIME_MODEL_ID") or (project.get("modelId") if kind == project.get("modelType") else None) or default
        if kind not in ("stub", "openai", "anthropic", "ollama"):
            self.faults.append(f"RUNTIME_MODEL_TYPE: {kind[:64]!r} is not one of stub, openai, anthropic and ollama, which this program asks")
        elif kind == "stub" and model_id != "stub-echo":
            self.faults.append(f"RUNTIME_MODEL_ID: the stub has the model stub-echo, and not {model_id[:64]!r}")
        elif not model_id:
            self.faults.append(f"RUNTIME_MODEL_ID: name a model of {kind}")
        self.model = Model(kind, model_id, variables)
        self.tools = self.read("RUNTIME_TOOLS", self.tool)
        self.verifier = self.access()

    def number(self, name, default, least, most):
        text = self.variables.get(name) or ""
        if not text:
            return default
        if not re.fullmatch(r"[0-9]{1,10}", text) or not least <= int(text) <= most:
            self.faults.append(f"{name}: {text[:64]!r} is not a whole number from {least} to {most}")
            return default
        return int(text)

    def read(self, name, one):
        text = self.variables.get(name) or "[]"
        try:
            given = json.loads(text)
            found = [one(config) for config in given]
        except (ValueError, TypeError, AttributeError, KeyError):
            self.faults.append(f"{name}: is not a JSON array of objects as docs/runtime-contract.md has them")
            return []
        return [item for item in found if item is not None]

    def tool(self, config):
        if config["type"] != "http":
            log("warn", "the tool is left out: this program calls http tools only", tool=config["name"], type=config["type"])
            return None
        missing = [name for name in HttpTool.secrets(config) if not self.variables.get(name)]
        if missing:
            self.faults.append(f"RUNTIME_TOOLS: the tool {config['name']} needs the variable {missing[0]}, which is not set")
            return None
        try:
            return HttpTool(config, self.variables)
        except ValueError as error:
            self.faults.append(f"RUNTIME_TOOLS: {config['name']}: {error}")
            return None

    def access(self):
        """What verifies X-Slipway-Token. None where the platform has no key, or the package cryptography is not installed."""
        key, wanted = self.variables.get("RUNTIME_ACCESS_PUBLIC_KEY") or "", self.variables.get("RUNTIME_ACCESS") or ""
        if wanted not in ("", "platform"):
            self.faults.append(f"RUNTIME_ACCESS: {wanted[:64]!r} is not platform")
        self.token_needed = wanted == "platform"
        if self.token_needed and not key:
            self.faults.append("RUNTIME_ACCESS_PUBLIC_KEY: is needed with RUNTIME_ACCESS=platform")
        if not key:
            return None
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        except ImportError:
            if self.token_needed:
                self.faults.append("RUNTIME_ACCESS: platform needs the package cryptography; add it to requirements.txt")
            return None
        try:
            return Ed25519PublicKey.from_public_bytes(base64.b64decode(key.strip(), validate=True))
        except ValueError:
            self.faults.append("RUNTIME_ACCESS_PUBLIC_KEY: is not an Ed25519 key in base64")
            return None


# Tools ----------------------------------------------------------------------------------------------------------------------------

PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
SEND_IN_QUERY = ("GET", "HEAD", "DELETE")
TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool}


class ToolFault(Exception):
    """A call that cannot be made, or failed. The model reads the message."""


class HttpTool:
    """A Tool of type http. Values fill their placeholders and cannot leave their path segment or query value."""

    def __init__(self, config, variables):
        self.name, self.description = config["name"], config.get("description") or config["name"]
        self.method, self.timeout = config.get("method") or "GET", config.get("timeout") or 30
        self.parameters = config.get("parameters") or []
        endpoint = config["endpoint"].split("#", 1)[0]
        found = re.fullmatch(r"(https?://[^/?#{}@\s]+)(/[^?]*)?(?:\?(.*))?", endpoint)
        if not found:
            raise ValueError("endpoint: is not a URL")
        self.origin, path, query = found[1], found[2] or "/", found[3]
        self.path, self.query = path[1:].split("/"), query.split("&") if query else []
        self.in_path = set(PLACEHOLDER.findall(path))
        self.placed = self.in_path | set(PLACEHOLDER.findall(query or ""))
        self.headers = dict(config.get("headers") or {})
        for header, variable in (config.get("headersFrom") or {}).items():
            self.headers[header] = variables[variable]
        for header, auth in (config.get("auth") or {}).items():
            login = variables[auth["secret"]]
            if auth["scheme"] == "basic":
                login = "Basic " + base64.b64encode(f"{variables[auth['user']]}:{login}".encode()).decode()
            self.headers[header] = login if auth["scheme"] == "basic" else f"Bearer {login}"

    @staticmethod
    def secrets(config):
        names = list((config.get("headersFrom") or {}).values())
        for auth in (config.get("auth") or {}).values():
            names += [auth["secret"]] + ([auth["user"]] if auth.get("user") else [])
        return names

    @property
    def changes_nothing(self):
        return self.method in ("GET", "HEAD")

    @property
    def schema(self):
        fields = {}
        for parameter in self.parameters:
            fields[parameter["name"]] = {"type": parameter["type"]}
            if parameter.get("description"):
                fields[parameter["name"]]["description"] = parameter["description"]
        required = [one["name"] for one in self.parameters if one.get("required") or one["name"] in self.in_path]
        return {"type": "object", "properties": fields, "required": required, "additionalProperties": False}

    def check(self, arguments):
        """The arguments as the schema has them. What can be mended without loss is."""
        known = {parameter["name"]: parameter["type"] for parameter in self.parameters}
        given = {name: value for name, value in arguments.items() if value is not None}
        faults = [f"{name}: is not a parameter" for name in given if name not in known]
        faults += [f"{name}: is required" for name in self.schema["required"] if name not in given]
        for name, value in given.items():
            kind = known.get(name)
            if kind in ("integer", "number") and isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,15}", value):
                given[name] = value = int(value)
            if kind == "integer" and isinstance(value, float) and value.is_integer():
                given[name] = value = int(value)
            is_other = isinstance(value, bool) and kind != "boolean"
            if kind and (is_other or not isinstance(value, TYPES[kind])):
                faults.append(f"{name}: must be of type {kind}")
        if faults:
            raise ToolFault("; ".join(faults))
        return given

    def url(self, arguments):
        segments = [self.segment(segment, arguments) for segment in self.path]
        pairs = [filled for filled in (self.pair(pair, arguments) for pair in self.query) if filled is not None]
        if self.method in SEND_IN_QUERY:
            left = [(name, value) for name, value in arguments.items() if name not in self.placed]
            pairs += [f"{encode(name)}={encode(value)}" for name, value in left]
        return f"{self.origin}/{'/'.join(segments)}" + (f"?{'&'.join(pairs)}" if pairs else "")

    @staticmethod
    def segment(text, arguments):
        names = PLACEHOLDER.findall(text)
        filled = PLACEHOLDER.sub(lambda found: encode(arguments[found[1]]), text)
        if names and filled == "":
            raise ToolFault(f"{names[0]}: must not be empty")
        if names and filled.lower().replace("%2e", ".") in (".", ".."):
            raise ToolFault(f"{names[0]}: must not be . or ..")
        return filled

    @staticmethod
    def pair(text, arguments):
        if any(name not in arguments for name in PLACEHOLDER.findall(text)):
            return None
        return PLACEHOLDER.sub(lambda found: encode(arguments[found[1]]), text)

    def call(self, arguments):
        arguments = self.check(arguments)
        headers, body = dict(self.headers), None
        if self.method not in SEND_IN_QUERY:
            body = json.dumps({name: value for name, value in arguments.items() if name not in self.placed}).encode()
            headers.setdefault("Content-Type", "application/json")
        request = urllib.request.Request(self.url(arguments), data=body, headers=headers, method=self.method)
        try:
            with OPENER.open(request, timeout=self.timeout) as answer:
                return self.text(answer.headers, answer.read(TOOL_OUTPUT_BYTES + 1))
        except urllib.error.HTTPError as error:
            raise ToolFault(f"status {error.code}: " + self.text(error.headers, error.read(1024))) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise ToolFault(f"the server did not answer: {type(reason).__name__}") from None

    @staticmethod
    def text(headers, content):
        kind = headers.get_content_type()
        if not (kind.startswith("text/") or kind.endswith(("json", "xml", "yaml", "javascript"))):
            return f"({kind}, {headers.get('content-length', len(content))} bytes)"
        text = content[:TOOL_OUTPUT_BYTES].decode("utf-8", "replace")
        return text + "\n(cut here)" if len(content) > TOOL_OUTPUT_BYTES else text


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """A login goes to no other place than the one that was written down."""

    def redirect_request(self, *_):
        return None


PROXY = os.environ.get("RUNTIME_EGRESS_PROXY")
OPENER = urllib.request.build_opener(NoRedirects, urllib.request.ProxyHandler({"http": PROXY, "https": PROXY} if PROXY else {}))


def encode(value):
    """Everything but letters, digits and -_.~ is percent-encoded."""
    return urllib.parse.quote(value if isinstance(value, str) else json.dumps(value), safe="")


class TurnTool:
    """A tool as one turn has it: calls are told to the caller, and in evaluations nothing is changed."""

    def __init__(self, tool, turn):
        self.name, self.description, self.schema = tool.name, tool.description, tool.schema
        self.tool, self.turn = tool, turn

    def call(self, arguments):
        """The result, or the words that say why there is none."""
        call_id, began, is_error, sources = "call_" + secrets.token_hex(8), time.monotonic(), True, None
        self.turn.event({"type": "tool_start", "id": call_id, "name": self.name, "arguments": arguments})
        try:
            if self.turn.is_evaluation and not self.tool.changes_nothing:
                content = "error: this tool is not called in evaluations"
            else:
                content, is_error = self.tool.call(arguments), False
                # A search says what it found besides.
                content, sources = content if isinstance(content, tuple) else (content, None)
        except ToolFault as fault:
            content = f"error: {fault}"
        took = int((time.monotonic() - began) * 1000)
        end = {"type": "tool_end", "id": call_id, "name": self.name, "is_error": is_error, "content": content, "duration_ms": took}
        self.turn.event(end)
        if sources:
            self.turn.event({"type": "sources", "sources": sources})
        return content


# Turns ----------------------------------------------------------------------------------------------------------------------------


class Turn:
    """One question and its answer. answer(turn) runs in a thread of its own; what it says goes through a queue to the connection."""

    def __init__(self, agent, messages, system=None, is_evaluation=False):
        self.settings, self.model = agent.settings, agent.settings.model
        self.system = agent.settings.system if system is None else system
        self.messages, self.is_evaluation = messages, is_evaluation
        self.tools = [TurnTool(tool, self) for tool in agent.tools]
        self.trace_id = "tr_" + secrets.token_hex(13)
        self.stop_reason, self.text, self.usage = "end_turn", "", {"input_tokens": 0, "output_tokens": 0}
        self.cancelled, self.deadline = threading.Event(), time.monotonic() + agent.settings.turn_seconds
        self._queue = queue.Queue(maxsize=1024)

    @property
    def message(self):
        return self.messages[-1]["content"]

    def token(self, text):
        """The next fragment of the answer."""
        if text:
            self.event({"type": "token", "content": text})

    def count(self, input_tokens, output_tokens):
        """What a call of the model took."""
        self.usage["input_tokens"] += input_tokens or 0
        self.usage["output_tokens"] += output_tokens or 0

    def event(self, event):
        if self.cancelled.is_set():
            raise Cancelled
        self._put(event)

    def _put(self, event):
        while True:
            try:
                return self._queue.put(event, timeout=1)
            except queue.Full:
                if self.cancelled.is_set():
                    raise Cancelled from None

    def _run(self, answer):
        try:
            answer(self)
            end = None
        except Cancelled:
            end = None
        except ModelFault as fault:
            end = Refused(502, f"the model failed: {fault}")
        except BaseException as error:  # noqa: BLE001: whatever a framework raises, the caller gets an answer
            places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-6:]]
            log("error", "the turn failed", error=type(error).__name__, at=places)
            status = status_of(error)
            hint = f" (status {status})" if status else ""
            end = Refused(502, f"the model failed: {type(error).__name__}{hint}; the pod's log says where")
        try:
            self._put(end)
        except Cancelled:
            pass

    def events(self, answer):
        """The events as they come; None after 15 s without one. Raises Refused when the turn fails."""
        threading.Thread(target=self._run, args=(answer,), daemon=True).start()
        while True:
            left = self.deadline - time.monotonic()
            if left <= 0 or self.cancelled.is_set():
                self.stop_reason = "cancelled" if self.cancelled.is_set() else "time_budget"
                self.cancelled.set()
                return
            try:
                event = self._queue.get(timeout=min(KEEP_ALIVE_SECONDS, left, 1))
            except queue.Empty:
                yield None
                continue
            if event is None:
                return
            if isinstance(event, Refused):
                raise event
            if event["type"] == "token":
                self.text += event["content"]
            yield event


def status_of(error):
    """The status that the model's server answered with, if that is why."""
    for _ in range(8):
        if error is None:
            return None
        status = getattr(error, "status_code", None)
        if isinstance(status, int):
            return status
        error = error.__cause__ or error.__context__
    return None


class Conversations:
    """The last conversations, in memory: CONVERSATIONS of at most CONVERSATION_BYTES. Another pod does not know them."""

    def __init__(self, kept):
        self.kept, self.lock, self.asked, self.all = kept, threading.Lock(), {}, OrderedDict()

    def begin(self, conversation_id, asked):
        with self.lock:
            if conversation_id in self.asked:
                raise Refused(409, "the conversation has a turn under way")
            self.asked[conversation_id] = asked
            return list(self.all.get(conversation_id, []))

    def end(self, conversation_id, asked, answer):
        """Nothing if this turn ended before: the next one of the conversation may be under way."""
        with self.lock:
            if self.asked.get(conversation_id) is not asked:
                return
            del self.asked[conversation_id]
            if not answer or not self.kept:
                return
            said = [asked, {"role": "assistant", "content": answer}]
            messages = (self.all.pop(conversation_id, []) + said)[-CONVERSATION_MESSAGES:]
            while messages and sum(len(message["content"].encode()) for message in messages) > CONVERSATION_BYTES:
                messages = messages[2:]
            self.all[conversation_id] = messages
            while len(self.all) > CONVERSATIONS:
                self.all.popitem(last=False)


class Agent:
    """What all requests share."""

    def __init__(self, answer, settings, tools=()):
        self.answer, self.settings = answer, settings
        self.tools = list(settings.tools) + list(tools)
        self.conversations = Conversations("memory" in settings.capabilities)
        self.lock, self.turns, self.ending = threading.Lock(), set(), False
        self.requests, self.seconds = {}, {}

    def begin(self, turn):
        with self.lock:
            if self.ending or len(self.turns) >= TURNS:
                words = "the agent shuts down" if self.ending else f"{TURNS} turns are under way"
                raise Refused(503, words, **{"Retry-After": "1"})
            self.turns.add(turn)

    def end(self, turn):
        with self.lock:
            self.turns.discard(turn)

    def count(self, route, status, took):
        with self.lock:
            self.requests[route, status] = self.requests.get((route, status), 0) + 1
            self.seconds[route] = self.seconds.get(route, 0.0) + took

    def metrics(self):
        with self.lock:
            lines = ["# TYPE slipway_runtime_requests counter"]
            lines += [f'slipway_runtime_requests_total{{route="{route}",status="{status}"}} {count}' for (route, status), count in sorted(self.requests.items())]
            lines += ["# TYPE slipway_runtime_request_time_seconds counter"]
            lines += [f'slipway_runtime_request_time_seconds_total{{route="{route}"}} {took:.6f}' for route, took in sorted(self.seconds.items())]
        return "\n".join([*lines, "# EOF", ""])


# HTTP -----------------------------------------------------------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    protocol_version, timeout, server_version, sys_version = "HTTP/1.1", IDLE_SECONDS, "agent", ""
    agent: Agent

    def do_GET(self):
        self.handle_one()

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_GET

    def handle_one(self):
        began, self.sent, self.read_whole = time.monotonic(), None, False
        self.path_only = self.path.split("?", 1)[0]
        given = self.headers.get("x-request-id") or ""
        self.request_id = given if re.fullmatch(r"[\x21-\x7e]{1,128}", given) else "req_" + secrets.token_hex(13)
        try:
            self.route()
        except Refused as refused:
            if self.sent is None:
                self.refuse(refused)
        except (BrokenPipeError, ConnectionError, TimeoutError):
            self.close_connection = True
        except Exception as error:  # noqa: BLE001
            log("error", "the request failed", error=type(error).__name__, at=[str(frame.lineno) for frame in traceback.extract_tb(error.__traceback__)])
            if self.sent is None:
                self.refuse(Refused(500, "the agent failed; its log says where"))
            self.close_connection = True
        route = self.path_only if self.path_only in ENDPOINTS else "other"
        took = time.monotonic() - began
        self.agent.count(route, self.sent or 0, took)
        log("info", "request", method=self.command, route=route, status=self.sent, ms=int(took * 1000), request_id=self.request_id)

    def route(self):
        method = ENDPOINTS.get(self.path_only)
        if method is None or (self.path_only == "/metrics" and "metrics" not in self.agent.settings.capabilities):
            raise Refused(404, "there is " + ", ".join(ENDPOINTS))
        if self.command != method and not (self.command == "HEAD" and method == "GET"):
            raise Refused(405, f"{self.path_only} takes {method}", Allow=method)
        if self.path_only == "/healthz":
            return self.reply(200, "text/plain", b"ok\n")
        if self.path_only == "/readyz":
            return self.reply(503 if self.agent.ending else 200, "text/plain", b"ending\n" if self.agent.ending else b"ok\n")
        self.check_token()
        if self.path_only == "/metrics":
            return self.reply(200, "application/openmetrics-text; version=1.0.0; charset=utf-8", self.agent.metrics().encode())
        if self.path_only == "/v1/models":
            model = {"id": self.agent.settings.agent_name, "object": "model", "created": 0, "owned_by": "slipway"}
            return self.reply_json(200, {"object": "list", "data": [model]})
        body = self.body()
        if self.path_only == "/v1/chat/completions":
            return self.completions(body)
        return self.chat(body)

    def check_token(self):
        """Whether the platform meant this request for this agent; see docs/runtime-contract.md."""
        settings, token = self.agent.settings, self.headers.get("x-slipway-token")
        if token is None:
            if settings.token_needed:
                raise Refused(401, "a token of the platform is needed")
            return
        if settings.verifier is None:
            return
        audience = verified(settings.verifier, token, time.time())
        if audience is None:
            raise Refused(401, "the token is not the platform's, or no longer valid")
        if audience != settings.agent_id:
            raise Refused(421, "the request is for another agent")

    def body(self):
        if "chunked" in (self.headers.get("transfer-encoding") or "").lower():
            content = self.chunks()
        else:
            length = self.headers.get("content-length") or "0"
            if not re.fullmatch(r"[0-9]{1,12}", length):
                raise Refused(400, "content-length is not a number")
            if int(length) > BODY_BYTES:
                self.discard(int(length))
                raise Refused(413, f"a body has at most {BODY_BYTES} bytes")
            content = self.rfile.read(int(length))
        self.read_whole = True
        if (self.headers.get_content_type() if self.headers.get("content-type") else "") != "application/json":
            raise Refused(415, "the body must be application/json")
        try:
            value = json.loads(content)
        except json.JSONDecodeError as error:
            raise Refused(400, f"the body is not JSON: line {error.lineno}, column {error.colno}") from None
        except (UnicodeDecodeError, RecursionError):
            raise Refused(400, "the body is not JSON") from None
        if not isinstance(value, dict):
            raise Refused(400, "the body must be an object")
        return value

    def discard(self, length):
        """Reads what is too large, within bounds, so that its sender gets to read the answer."""
        left = min(length, DISCARDED_BYTES)
        while left > 0 and (part := self.rfile.read(min(left, 65536))):
            left -= len(part)

    def chunks(self):
        content = b""
        while True:
            size = self.rfile.readline(64).split(b";")[0].strip()
            if not re.fullmatch(rb"[0-9a-fA-F]{1,8}", size):
                raise Refused(400, "the body's chunks are malformed")
            if int(size, 16) == 0:
                while self.rfile.readline(8192).strip():
                    pass
                return content
            if len(content) + int(size, 16) > BODY_BYTES:
                raise Refused(413, f"a body has at most {BODY_BYTES} bytes")
            content += self.rfile.read(int(size, 16))
            self.rfile.readline(8)

    def chat(self, body):
        known = ("message", "input", "conversation_id", "cancel_on_disconnect")
        other = next((name for name in body if name not in known), None)
        if other is not None:
            raise Refused(400, f"the field {other[:64]!r} is not known; there are {', '.join(known)}")
        message = body.get("message", body.get("input"))
        if not isinstance(message, str) or not message.strip():
            raise Refused(400, "message: is required, as a text")
        conversation_id = body.get("conversation_id") or "conv_" + secrets.token_hex(13)
        if not isinstance(conversation_id, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", conversation_id):
            raise Refused(400, "conversation_id: must have 1 to 64 letters, digits, - or _")
        if not isinstance(body.get("cancel_on_disconnect", False), bool):
            raise Refused(400, "cancel_on_disconnect: must be true or false")
        is_evaluation = bool(self.headers.get("x-slipway-evaluation"))
        asked = {"role": "user", "content": message}
        earlier = [] if is_evaluation else self.agent.conversations.begin(conversation_id, asked)

        def end(answer=""):
            """Before the caller has the whole answer, as the next message may follow at once."""
            self.agent.conversations.end(conversation_id, asked, answer)

        try:
            turn = Turn(self.agent, [*earlier, asked], is_evaluation=is_evaluation)
            self.agent.begin(turn)
            try:
                if self.path_only == "/chat/stream":
                    self.stream(turn, conversation_id, body.get("cancel_on_disconnect", False), end)
                else:
                    for _ in turn.events(self.agent.answer):
                        pass
                    end(turn.text)
                    self.reply_json(200, {"output": turn.text, **self.about(turn, conversation_id)})
            finally:
                turn.cancelled.set()
                self.agent.end(turn)
        finally:
            end()

    @staticmethod
    def about(turn, conversation_id):
        return {"conversation_id": conversation_id, "trace_id": turn.trace_id, "usage": turn.usage, "stop_reason": turn.stop_reason}

    def stream(self, turn, conversation_id, ends_with_client, end):
        # What the events tell, so that evaluations know that there is no more of it.
        searches = any(getattr(tool, "tells_sources", False) for tool in self.agent.tools)
        self.begin_events(("x-slipway-events", "tools, sources" if searches else "tools"))
        fragments = "streaming" in self.agent.settings.capabilities
        quiet, is_there = time.monotonic(), True
        try:
            for event in turn.events(self.agent.answer):
                if event is None or (event["type"] == "token" and not fragments):
                    if time.monotonic() - quiet < KEEP_ALIVE_SECONDS:
                        continue
                    event = None
                if is_there:
                    is_there = self.send_event(event)
                    if not is_there and ends_with_client:
                        turn.cancelled.set()
                quiet = time.monotonic()
            if not fragments and turn.text and is_there:
                self.send_event({"type": "token", "content": turn.text})
            end(turn.text)
            self.send_event({"type": "done", "content": turn.text, **self.about(turn, conversation_id)})
        except Refused as refused:
            end(turn.text)
            self.send_event({"type": "error", "message": refused.message, "status": refused.status})

    def completions(self, body):
        messages, system = self.dialogue(body)
        turn = Turn(self.agent, messages, system, is_evaluation=bool(self.headers.get("x-slipway-evaluation")))
        head = {"id": "chatcmpl-" + turn.trace_id[3:], "created": int(time.time()), "model": self.agent.settings.agent_name}
        self.agent.begin(turn)
        try:
            if body.get("stream"):
                self.stream_completion(turn, head, bool((body.get("stream_options") or {}).get("include_usage")))
                return
            for _ in turn.events(self.agent.answer):
                pass
        finally:
            turn.cancelled.set()
            self.agent.end(turn)
        choice = {"index": 0, "message": {"role": "assistant", "content": turn.text}, "finish_reason": self.finish_reason(turn)}
        self.reply_json(200, {**head, "object": "chat.completion", "choices": [choice], "usage": self.openai_usage(turn)})

    def stream_completion(self, turn, head, with_usage):
        def chunk(delta, reason=None, **more):
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            return {**head, "object": "chat.completion.chunk", "choices": [choice], **more}

        self.begin_events()
        self.send_event(chunk({"role": "assistant", "content": ""}))
        try:
            for event in turn.events(self.agent.answer):
                if event is not None and event["type"] == "token" and not self.send_event(chunk({"content": event["content"]})):
                    turn.cancelled.set()
            self.send_event(chunk({}, self.finish_reason(turn)))
            if with_usage:
                self.send_event({**chunk({}), "choices": [], "usage": self.openai_usage(turn)})
            self.send(b"data: [DONE]\n\n")
        except Refused as refused:
            self.send_event({"error": {"message": refused.message, "type": REASONS[refused.status], "code": refused.status}})

    def dialogue(self, body):
        """Messages and system prompt of a completion. The caller keeps the conversation."""
        for field in ("tools", "functions"):
            if body.get(field):
                raise Refused(400, f"{field}: are not taken; the agent has its own")
        if body.get("n") not in (None, 1):
            raise Refused(400, "n: must be 1")
        if (body.get("response_format") or {"type": "text"}) != {"type": "text"}:
            raise Refused(400, "response_format: must be text")
        given = body.get("messages")
        if not isinstance(given, list) or not given:
            raise Refused(400, "messages: is required, as a list")
        systems, messages = [self.agent.settings.system], []
        for at, message in enumerate(given):
            role, content = (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
            if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
                content = "".join(str(part.get("text", "")) for part in content)
            if role not in ("system", "developer", "user", "assistant") or not isinstance(content, str):
                raise Refused(400, f"messages[{at}]: must have a role (system, developer, user, assistant) and a text")
            if role in ("system", "developer"):
                systems.append(content)
            else:
                messages.append({"role": role, "content": content})
        if not messages or messages[-1]["role"] != "user":
            raise Refused(400, "messages: the last one must be the user's")
        return messages, "\n\n".join(text for text in systems if text)

    @staticmethod
    def finish_reason(turn):
        return "stop" if turn.stop_reason == "end_turn" else "length"

    @staticmethod
    def openai_usage(turn):
        total = turn.usage["input_tokens"] + turn.usage["output_tokens"]
        return {"prompt_tokens": turn.usage["input_tokens"], "completion_tokens": turn.usage["output_tokens"], "total_tokens": total}

    def begin_events(self, *headers):
        self.sent, self.close_connection = 200, True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("cache-control", "no-store")
        self.send_header("x-request-id", self.request_id)
        self.send_header("connection", "close")
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def send_event(self, event):
        return self.send(b":\n\n" if event is None else f"data: {json.dumps(event)}\n\n".encode())

    def send(self, content):
        """Whether the caller is still there."""
        try:
            self.wfile.write(content)
            self.wfile.flush()
            return True
        except OSError:
            return False

    def reply_json(self, status, value, **headers):
        self.reply(status, "application/json", json.dumps(value).encode(), **headers)

    def refuse(self, refused):
        value = {"error": REASONS[refused.status], "message": refused.message, "path": self.path_only[:1024]}
        self.reply_json(refused.status, value, **refused.headers)

    def reply(self, status, kind, content, **headers):
        self.sent = status
        # What is left of a body that was not read would be taken for the next request.
        has_body = self.headers.get("transfer-encoding") or self.headers.get("content-length", "0") != "0"
        if self.agent.ending or (has_body and not self.read_whole):
            self.close_connection = True
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.send_header("x-request-id", self.request_id)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_):
        pass


def verified(key, token, now):
    """The audience of a token of the platform's that is valid now; None of another."""
    try:
        if len(token) > TOKEN_BYTES:
            return None
        signed, signature = token.rsplit(".", 1)
        head, claims = (json.loads(unpadded(part)) for part in signed.split("."))
        if head["alg"] != "EdDSA":
            return None
        key.verify(unpadded(signature), signed.encode())
        begins, ends = claims["iat"], claims["exp"]
        return claims["aud"] if begins <= now + 10 and now < ends <= begins + 120 else None
    except Exception:  # noqa: BLE001: whatever is wrong with it, it is not valid
        return None


def unpadded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Listener(ThreadingHTTPServer):
    """A server that looks no names up when it begins."""

    daemon_threads, allow_reuse_address, request_queue_size = True, True, 128

    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "agent", self.server_address[1]


class Server(Listener):
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET


    def __init__(self, agent):
        self.agent, self.places = agent, threading.BoundedSemaphore(CONNECTIONS)
        handler = type("AgentHandler", (Handler,), {"agent": agent})
        super().__init__(("", agent.settings.port), handler)

    def server_bind(self):
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request, client_address):
        while not self.places.acquire(timeout=0.5):
            if self.agent.ending:
                return self.shutdown_request(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request, client_address):
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.places.release()

    def handle_error(self, *_):
        log("debug", "a connection ended early")


class StubModel:
    """A model without network and key: it answers `Echo: ` and the last message, and a token is a word. It listens on loopback, so
    that every framework asks it as it asks a real server."""

    def __init__(self):
        class Stub(BaseHTTPRequestHandler):
            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)))
                said = next((plain(one.get("content")) for one in reversed(asked["messages"]) if one["role"] == "user"), "")
                text = "Echo: " + said
                usage = {"prompt_tokens": len(said.split()), "completion_tokens": len(text.split()), "total_tokens": len(said.split()) + len(text.split())}
                head = {"id": "chatcmpl-stub", "created": 0, "model": asked.get("model", "stub-echo")}
                kind, body = "application/json", {**head, "object": "chat.completion", "usage": usage}
                body["choices"] = [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]
                content = json.dumps(body).encode()
                if asked.get("stream"):
                    chunk = {**head, "object": "chat.completion.chunk"}
                    deltas = [({"role": "assistant", "content": ""}, None)]
                    deltas += [({"content": word}, None) for word in re.findall(r"\s*\S+\s*|\s+", text)] + [({}, "stop")]
                    events = [{**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]} for delta, reason in deltas]
                    events.append({**chunk, "choices": [], "usage": usage})
                    kind = "text/event-stream"
                    content = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode() + b"data: [DONE]\n\n"
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        server = Listener(("127.0.0.1", 0), Stub)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"


def plain(content):
    """The text of a message, whose content may be a list of parts."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content or ""


def serve(answer, tools=()):
    """Serves until SIGTERM. `tools` are further ones, with name, description, schema, changes_nothing and call(arguments)."""
    settings = Settings()
    if settings.faults:
        end_with(settings.faults)
    if "knowledge" in settings.capabilities:
        import knowledge

        tools = [*tools, *knowledge.tools(settings)]
    agent = Agent(answer, settings, tools)
    server = Server(agent)
    told = told_to_end()
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    log("info", "listening", port=server.server_address[1], agent=settings.agent_name, model=f"{settings.model.kind}:{settings.model.id}")
    while told.recv(1)[0] not in ENDING_SIGNALS:
        pass
    drain(agent, server)
    log("info", "ended")
    sys.stderr.flush()
    # Threads of frameworks may never end.
    os._exit(0)


def told_to_end():
    """A socket that gets the number of each signal. Any thread may be given one, and a lock that the main thread waits for would not
    notice."""
    told, tells = socket.socketpair()
    tells.setblocking(False)
    signal.set_wakeup_fd(tells.detach())
    for number in ENDING_SIGNALS:
        signal.signal(number, lambda *_: None)
    return told


def drain(agent, server):
    """Closes the listening socket, and lets turns under way finish."""
    deadline = time.monotonic() + agent.settings.shutdown_seconds
    with agent.lock:
        agent.ending = True
    server.shutdown()
    server.socket.close()
    while time.monotonic() < deadline:
        with agent.lock:
            turns = list(agent.turns)
        if not turns:
            break
        if time.monotonic() > deadline - CANCEL_BEFORE_END_SECONDS:
            for turn in turns:
                turn.cancelled.set()
        time.sleep(0.05)
    # The last bytes of the last answer are on their way.
    time.sleep(0.2)
