"""A receiver of webhooks: it verifies signatures as the library of Standard Webhooks does, and looks whether messages for Slack have
the form that Slack documents. It keeps what it got, and answers late or otherwise when it is told to.

    receiver.py HOST PORT SECRET [TOKEN]              serves
    receiver.py verify SECRET ID TIMESTAMP SIGNATURE BODY    ends with 0 if that is a message with a good signature

POST /hook           messages, signed with SECRET; with TOKEN these are asked for as Authorization: Bearer, too
POST /services/T0/B0/good    messages for Slack; elsewhere beneath /services there is no webhook
POST /told           {"status", "headers", "delay", "times"}: how the next messages are answered
GET /got             the messages so far, each with path, headers, body, fault and the status that it was answered with
"""

import json
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

LOCK = threading.Lock()
GOT: list[dict] = []
TOLD: list[dict] = []

# https://docs.slack.dev/reference/messaging/payload and its secondary attachments.
MESSAGE = {"text": str, "username": str, "channel": str, "attachments": list}
ATTACHMENT = {"color": str, "fallback": str, "text": str, "fields": list, "ts": int}
FIELD = {"title": str, "value": str, "short": bool}


def form_fault(value, allowed: dict, where: str) -> str | None:
    """What is wrong with an object that may have these fields."""
    if not isinstance(value, dict):
        return f"{where} is no object"
    for name, field in value.items():
        if name not in allowed:
            return f"{where} has {name}, which is not documented"
        if not isinstance(field, allowed[name]) or (allowed[name] is int and isinstance(field, bool)):
            return f"{where}.{name} has the wrong type"
        # Only entities may stand for these.
        if isinstance(field, str) and (re.search("[<>]", field) or re.search("&(?!amp;|lt;|gt;)", field)):
            return f"{where}.{name} is not escaped"
    return None


def slack_fault(body: str) -> str | None:
    try:
        message = json.loads(body)
    except ValueError:
        return "invalid_payload"
    if fault := form_fault(message, MESSAGE, "message"):
        return fault
    if not message.get("text"):
        return "no_text"
    for attachment in message.get("attachments", []):
        if fault := form_fault(attachment, ATTACHMENT, "attachment"):
            return fault
        if not re.fullmatch("#[0-9a-f]{6}", attachment.get("color", "#000000")):
            return "attachment.color is no colour"
        for field in attachment.get("fields", []):
            if fault := form_fault(field, FIELD, "field"):
                return fault
    return None


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    secret = ""
    token = ""

    def log_message(self, *_):
        pass

    def answer(self, status: int, body: str, headers: dict | None = None):
        data = body.encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def judged(self, body: str) -> tuple[int, str]:
        """The status that a message deserves, and what is wrong with it."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.path.split("?")[0] == "/hook":
            if self.token and headers.get("authorization") != f"Bearer {self.token}":
                return 401, "another token"
            try:
                Webhook(self.secret).verify(body, headers)
            except (WebhookVerificationError, ValueError) as error:
                return 401, str(error)
            return 204, ""
        if self.path.startswith("/services/"):
            if self.path != "/services/T0/B0/good":
                return 404, "no_service"
            fault = slack_fault(body)
            return (400, fault) if fault else (200, "")
        return 404, "nothing is here"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        if self.path == "/told":
            told = json.loads(body)
            with LOCK:
                TOLD.clear()
                TOLD.extend([told] * told.get("times", 1))
            return self.answer(200, "{}")
        status, fault = self.judged(body)
        with LOCK:
            told = TOLD.pop(0) if TOLD else {}
        time.sleep(told.get("delay", 0))
        status = told.get("status", status)
        headers = {name.lower(): value for name, value in self.headers.items()}
        with LOCK:
            GOT.append({"path": self.path, "headers": headers, "body": body, "fault": fault, "status": status})
        try:
            self.answer(status, "" if status == 204 else (fault or "ok"), told.get("headers"))
        except OSError:
            # The sender waits no longer.
            pass

    def do_GET(self):
        if self.path != "/got":
            return self.answer(404, "")
        with LOCK:
            body = json.dumps(GOT)
        self.answer(200, body)


class Server(ThreadingHTTPServer):
    daemon_threads = True


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["verify"]:
        secret, identity, timestamp, signature, body = arguments[1:]
        headers = {"webhook-id": identity, "webhook-timestamp": timestamp, "webhook-signature": signature}
        try:
            Webhook(secret).verify(body, headers)
        except WebhookVerificationError as error:
            print(error)
            return 1
        return 0
    host, port, Receiver.secret, *token = arguments
    Receiver.token = token[0] if token else ""
    Server((host, int(port)), Receiver).serve_forever()
    return 0


sys.exit(main(sys.argv[1:]))
