"""The smallest agent that keeps docs/runtime-contract.md: it answers with what it heard, backwards."""
import json, os, secrets, signal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Agent(BaseHTTPRequestHandler):
    def do_GET(self):
        self.reply(*((200, "text/plain", b"ok\n") if self.path == "/healthz" else self.failed(404, "Not Found", "only /healthz, /chat and /chat/stream")))

    def do_POST(self):
        if self.path not in ("/chat", "/chat/stream"):
            return self.reply(*self.failed(404, "Not Found", "only /healthz, /chat and /chat/stream"))
        try:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            text = (asked.get("message") or asked["input"])[::-1]
        except (KeyError, TypeError, ValueError):
            return self.reply(*self.failed(400, "Bad Request", "`message` is missing, or the body is not JSON"))
        about = {"conversation_id": asked.get("conversation_id") or "conv_" + secrets.token_hex(13), "trace_id": "tr_" + secrets.token_hex(13), "usage": {"input_tokens": len(text.split()), "output_tokens": len(text.split())}}
        if self.path == "/chat":
            return self.reply(200, "application/json", json.dumps({"output": text, **about}).encode())
        events = [{"type": "token", "content": text}, {"type": "done", "content": text, **about}]
        self.reply(200, "text/event-stream", "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode())

    def failed(self, status, error, message):
        return status, "application/json", json.dumps({"error": error, "message": message, "path": self.path}).encode()

    def reply(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer(("", int(os.environ.get("RUNTIME_PORT", "8000"))), Agent)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
server.serve_forever()
