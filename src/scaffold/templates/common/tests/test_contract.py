"""What docs/runtime-contract.md asks of every agent, asked of agent.py as a process, with the stub for a model."""

import base64
import json
import threading
import time
import unittest

from tests.stage import ANSWER_SECONDS, FOLDER, Running

try:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
except ImportError:
    Ed25519PrivateKey = None

CAPABILITIES = json.loads((FOLDER / "project.json").read_text(encoding="utf-8"))["capabilities"]


class Contract(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.agent = Running().ready()

    @classmethod
    def tearDownClass(cls):
        cls.agent.stop()

    def test_probes_are_answered(self):
        for path in ("/healthz", "/readyz"):
            self.assertEqual(self.agent.ask("GET", path).status, 200)

    def test_a_chat_is_answered_whole(self):
        for field in ("message", "input"):
            answer = self.agent.ask("POST", "/chat", {field: "hello there", "conversation_id": "conv_mine"})
            self.assertEqual(answer.status, 200, answer.body)
            self.assertIn("Echo: ", answer.json["output"])
            self.assertIn("hello there", answer.json["output"])
            self.assertEqual(answer.json["conversation_id"], "conv_mine")
            self.assertTrue(answer.json["trace_id"].startswith("tr_"))
            self.assertEqual(answer.json["stop_reason"], "end_turn")
            self.assertGreater(answer.json["usage"]["input_tokens"], 0)
            self.assertGreater(answer.json["usage"]["output_tokens"], 0)
        self.assertTrue(self.agent.chat("hello").json["conversation_id"].startswith("conv_"))

    def test_the_next_message_may_follow_at_once(self):
        for path in ("/chat", "/chat/stream") * 20:
            self.assertEqual(self.agent.chat("again", path, conversation_id="conv_quick").status, 200)

    def test_a_streamed_answer_is_its_fragments(self):
        answer = self.agent.chat("one two three", "/chat/stream")
        self.assertEqual(answer.headers["content-type"], "text/event-stream")
        self.assertEqual(answer.headers["x-slipway-events"].split(", ")[0], "tools")
        *fragments, done = answer.events
        self.assertEqual(done["type"], "done")
        self.assertIn("one two three", done["content"])
        self.assertEqual("".join(event["content"] for event in fragments if event["type"] == "token"), done["content"])
        self.assertEqual(set(done) - {"type", "content"}, {"conversation_id", "trace_id", "usage", "stop_reason"})

    def test_clients_of_chat_completions_are_served(self):
        model = self.agent.ask("GET", "/v1/models").json["data"][0]["id"]
        asked = {"model": model, "messages": [{"role": "user", "content": [{"type": "text", "text": "hello there"}]}]}
        whole = self.agent.ask("POST", "/v1/chat/completions", asked).json
        text = whole["choices"][0]["message"]["content"]
        self.assertIn("hello there", text)
        self.assertEqual(whole["choices"][0]["finish_reason"], "stop")
        self.assertEqual(whole["usage"]["total_tokens"], whole["usage"]["prompt_tokens"] + whole["usage"]["completion_tokens"])
        streamed = self.agent.ask("POST", "/v1/chat/completions", {**asked, "stream": True, "stream_options": {"include_usage": True}})
        parts = [event["choices"][0]["delta"].get("content") or "" for event in streamed.events if event["choices"]]
        self.assertEqual("".join(parts), text)
        self.assertGreater(streamed.events[-1]["usage"]["total_tokens"], 0)
        self.assertTrue(streamed.body.endswith(b"data: [DONE]\n\n"))
        for wrong in ({"tools": [{}]}, {"n": 2}, {"response_format": {"type": "json_object"}}, {"messages": []}):
            self.assertEqual(self.agent.ask("POST", "/v1/chat/completions", {**asked, **wrong}).status, 400, wrong)

    def test_what_does_not_fit_is_refused_in_three_fields(self):
        cases = [
            ("POST", "/chat", b"{", 400, "line 1, column 2"),
            ("POST", "/chat", b"[]", 400, "object"),
            ("POST", "/chat", {}, 400, "message"),
            ("POST", "/chat", {"message": " "}, 400, "message"),
            ("POST", "/chat", {"message": "a", "colour": 1}, 400, "colour"),
            ("POST", "/chat", {"message": "a", "conversation_id": "a/b"}, 400, "conversation_id"),
            ("POST", "/chat", {"message": "x" * 1024 * 1024}, 413, "1048576"),
            ("GET", "/nothing", None, 404, "/chat"),
            ("GET", "/chat", None, 405, "POST"),
        ]
        for method, path, body, status, words in cases:
            answer = self.agent.ask(method, path, body)
            self.assertEqual(answer.status, status, (method, path, answer.body))
            self.assertEqual(set(answer.json), {"error", "message", "path"})
            self.assertEqual(answer.json["path"], path)
            self.assertIn(words, answer.json["message"])
        answer = self.agent.ask("POST", "/chat", b"message=a", content_type="application/x-www-form-urlencoded")
        self.assertEqual(answer.status, 415)
        self.assertEqual(self.agent.ask("GET", "/chat").headers["allow"], "POST")

    def test_a_request_id_is_echoed_or_made(self):
        self.assertEqual(self.agent.ask("GET", "/healthz", x_request_id="abc-1").headers["x-request-id"], "abc-1")
        self.assertTrue(self.agent.ask("GET", "/nothing").headers["x-request-id"].startswith("req_"))

    def test_metrics_are_there_if_they_were_asked_for(self):
        self.agent.chat("hello")
        answer = self.agent.ask("GET", "/metrics")
        if "metrics" in CAPABILITIES:
            self.assertIn('slipway_runtime_requests_total{route="/chat",status="200"}', answer.body.decode())
        else:
            self.assertEqual(answer.status, 404)

    def test_nothing_that_was_said_is_logged(self):
        self.agent.chat("a planted word: heliotrope")
        self.assertNotIn("heliotrope", self.agent.said())
        self.assertIn('"route": "/chat"', self.agent.said())
        self.assertNotIn("ended early", self.agent.said())


class StartAndEnd(unittest.TestCase):
    def test_what_it_cannot_do_it_refuses_before_it_listens(self):
        cases = [
            ({"RUNTIME_MODEL_TYPE": "bedrock"}, "RUNTIME_MODEL_TYPE"),
            ({"RUNTIME_MODEL_ID": "gpt-4o"}, "RUNTIME_MODEL_ID"),
            ({"RUNTIME_TURN_SECONDS": "soon", "RUNTIME_MAX_ROUNDS": "0"}, "RUNTIME_MAX_ROUNDS"),
            ({"RUNTIME_TOOLS": "{"}, "RUNTIME_TOOLS"),
        ]
        running = [(Running(**variables), words) for variables, words in cases]
        for agent, words in running:
            self.assertEqual(agent.process.wait(120), 2)
            self.assertIn(words, agent.said())
            agent.stop()

    def test_a_turn_under_way_is_finished_at_sigterm(self):
        agent = Running().ready()
        found = []
        agent.answering.clear()
        asking = threading.Thread(target=lambda: found.append(agent.chat("word " * 2000, "/chat/stream")))
        asking.start()
        self.assertTrue(agent.answering.wait(ANSWER_SECONDS))
        self.assertEqual(agent.stop(), 0)
        asking.join()
        self.assertEqual(found[0].events[-1]["type"], "done")

    if Ed25519PrivateKey is None:

        def test_tokens_that_cannot_be_checked_are_told_at_start(self):
            agent = Running(RUNTIME_ACCESS="platform", RUNTIME_ACCESS_PUBLIC_KEY=base64.b64encode(bytes(32)).decode())
            self.assertEqual(agent.process.wait(120), 2)
            self.assertIn("cryptography", agent.said())
            agent.stop()

    else:

        def test_a_request_for_another_agent_is_refused(self):
            private = Ed25519PrivateKey.generate()
            public = base64.b64encode(private.public_key().public_bytes_raw()).decode()
            agent = Running(RUNTIME_ACCESS="platform", RUNTIME_ACCESS_PUBLIC_KEY=public, RUNTIME_AGENT_ID="ag_mine").ready()
            try:
                now = int(time.time())
                cases = [
                    (token(private, "ag_mine", now), 200),
                    (token(private, "ag_other", now), 421),
                    (token(private, "ag_mine", now - 200), 401),
                    (token(Ed25519PrivateKey.generate(), "ag_mine", now), 401),
                    ("nonsense", 401),
                    (None, 401),
                ]
                for given, status in cases:
                    headers = {"x_slipway_token": given} if given else {}
                    self.assertEqual(agent.ask("POST", "/chat", {"message": "a"}, **headers).status, status, given)
            finally:
                agent.stop()


def token(private, audience, now):
    def part(content):
        return base64.urlsafe_b64encode(content).rstrip(b"=").decode()

    head = part(json.dumps({"alg": "EdDSA", "typ": "JWT"}).encode())
    signed = f"{head}.{part(json.dumps({'aud': audience, 'iat': now, 'exp': now + 120, 'jti': 'one'}).encode())}"
    return f"{signed}.{part(private.sign(signed.encode()))}"


if __name__ == "__main__":
    unittest.main()
