"""What the tests play with: the agent as a process, a model that answers by script, and a server that tools call."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from slipway_contract import Listener

FOLDER = Path(__file__).parent.parent
START_SECONDS = 120
ANSWER_SECONDS = 60


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def events(self):
        lines = [line[6:] for line in self.body.decode().splitlines() if line.startswith("data: ") and line != "data: [DONE]"]
        return [json.loads(line) for line in lines]


class Running:
    """agent.py with these variables and no others of the contract."""

    def __init__(self, **variables):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        kept = {name: value for name, value in os.environ.items() if not re.match("RUNTIME_|OPENAI_|ANTHROPIC_|OLLAMA_", name)}
        given = {"RUNTIME_PORT": str(self.port), "RUNTIME_MODEL_TYPE": "stub", "RUNTIME_MODEL_ID": "stub-echo", **variables}
        self.process = subprocess.Popen(
            [sys.executable, str(FOLDER / "agent.py")], env={**kept, **given}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=FOLDER
        )
        self.log = []
        # Set when an answer has begun.
        self.answering = threading.Event()
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reader.start()

    def ready(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError):
                if self.ask("GET", "/healthz").status == 200:
                    return self
            time.sleep(0.05)
        raise AssertionError("the agent did not start:\n" + self.said())

    def said(self):
        self.reader.join(0.5)
        return b"".join(self.log).decode()

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        content = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        given = {"content-type": "application/json"} if content is not None else {}
        connection.request(method, path, content, {**given, **{name.replace("_", "-"): value for name, value in headers.items()}})
        answer = connection.getresponse()
        self.answering.set()
        try:
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def chat(self, message, path="/chat", **fields):
        return self.ask("POST", path, {"message": message, **fields})

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self.reader.join(2)
            self.process.stderr.close()


class Served:
    """A server on loopback that keeps what it was asked."""

    def __init__(self):
        served = self
        self.asked = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                content = self.rfile.read(int(self.headers.get("content-length") or 0))
                served.asked.append((self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, content))
                status, kind, answer = served.answer(self.command, self.path, content)
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_POST = do_GET

            def log_message(self, *_):
                pass

        self.server = Listener(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class ScriptedModel(Served):
    """Answers, one after the other: a text, {"name": …, "arguments": …} for a call of a tool, or a status."""

    def __init__(self, *script):
        self.script = list(script)
        super().__init__()

    @property
    def variables(self):
        return {"RUNTIME_MODEL_TYPE": "openai", "RUNTIME_MODEL_ID": "scripted", "OPENAI_BASE_URL": self.url + "/v1", "OPENAI_API_KEY": "sk-planted"}

    @property
    def integration(self):
        """The same, as an integration gives it, beside a server and a key of the agent's Secrets."""
        other = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "sk-other"}
        return {**self.variables, **other, "RUNTIME_MODEL_BASE_URL": self.url + "/v1", "RUNTIME_MODEL_API_KEY": "sk-planted"}

    @property
    def bodies(self):
        return [json.loads(content) for method, _, _, content in self.asked if method == "POST"]

    def answer(self, method, path, content):
        step = self.script.pop(0) if self.script else "nothing more"
        if isinstance(step, int):
            error = {"error": {"message": "the scripted failure", "type": "scripted", "param": None, "code": None}}
            return step, "application/json", json.dumps(error).encode()
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        asked, head = json.loads(content), {"id": "chatcmpl-1", "created": 0, "model": "scripted"}
        message, reason = {"role": "assistant", "content": step}, "stop"
        if isinstance(step, dict):
            function = {"name": step["name"], "arguments": json.dumps(step["arguments"])}
            message, reason = {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}, "tool_calls"
        if not asked.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return 200, "application/json", json.dumps({**head, "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
        if reason == "tool_calls":
            deltas = [{"role": "assistant", "content": None, "tool_calls": [{"index": 0, **message["tool_calls"][0]}]}]
        else:
            deltas = [{"role": "assistant", "content": ""}, *({"content": part} for part in re.findall(r"\s*\S+\s*", step))]
        chunks = [{**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        chunks.append({**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        chunks.append({**head, "object": "chat.completion.chunk", "choices": [], "usage": usage})
        return 200, "text/event-stream", "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode() + b"data: [DONE]\n\n"


class ToolServer(Served):
    """Answers everything with `It is sunny.`"""

    def answer(self, method, path, content):
        return 200, "text/plain", b"It is sunny."
