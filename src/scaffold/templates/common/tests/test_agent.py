"""What agent.py does with its model and its tools. The model answers by script, over the protocol that providers speak."""

import json
import unittest

from tests.stage import FOLDER, Running, ScriptedModel, ToolServer

PROJECT = json.loads((FOLDER / "project.json").read_text(encoding="utf-8"))


def tool(name, method, url):
    return {
        "name": name, "type": "http", "category": "data", "description": "The weather of a city.", "method": method,
        "endpoint": url + "/weather/{city}?lang=en", "timeout": 5, "headersFrom": {"X-Key": "WEATHER_KEY"},
        "parameters": [{"name": "city", "type": "string", "required": True}, {"name": "days", "type": "integer"}],
    }  # fmt: skip


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model, cls.server = ScriptedModel(), ToolServer()
        tools = [tool("get_weather", "GET", cls.server.url), tool("order_weather", "POST", cls.server.url)]
        given = {"RUNTIME_TOOLS": json.dumps(tools), "WEATHER_KEY": "planted-key", "RUNTIME_SYSTEM_PROMPT": "You are a weather person."}
        cls.agent = Running(**cls.model.variables, **given).ready()

    @classmethod
    def tearDownClass(cls):
        cls.agent.stop()
        cls.model.close()
        cls.server.close()

    def script(self, *steps):
        self.model.script[:] = steps
        self.model.asked.clear()
        self.server.asked.clear()

    def test_the_model_gets_instructions_and_message_and_is_counted(self):
        self.script("It rains.")
        answer = self.agent.chat("How is the weather?")
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(answer.json["output"], "It rains.")
        self.assertEqual(answer.json["usage"], {"input_tokens": 7, "output_tokens": 3})
        sent = json.dumps(self.model.bodies[0]["messages"])
        self.assertIn("You are a weather person.", sent)
        self.assertIn("How is the weather?", sent)
        self.assertEqual(self.model.bodies[0]["model"], "scripted")

    def test_a_tool_is_called_and_its_result_goes_to_the_model(self):
        self.script({"name": "get_weather", "arguments": {"city": "São Paulo/..", "days": 2}}, "It is sunny there.")
        events = self.agent.chat("How is the weather?", "/chat/stream").events
        self.assertEqual(events[-1]["content"], "It is sunny there.", events)
        method, path, headers, _ = self.server.asked[0]
        self.assertEqual((method, path), ("GET", "/weather/S%C3%A3o%20Paulo%2F..?lang=en&days=2"))
        self.assertEqual(headers["x-key"], "planted-key")
        self.assertIn("It is sunny.", json.dumps(self.model.bodies[1]["messages"]))
        told = {event["type"]: event for event in events}
        self.assertEqual(told["tool_start"]["arguments"], {"city": "São Paulo/..", "days": 2})
        self.assertEqual((told["tool_end"]["content"], told["tool_end"]["is_error"]), ("It is sunny.", False))
        self.assertEqual(told["tool_end"]["id"], told["tool_start"]["id"])
        self.assertEqual(events[-1]["usage"], {"input_tokens": 14, "output_tokens": 6})
        self.assertNotIn("planted", self.agent.said())

    def test_arguments_that_do_not_fit_go_back_to_the_model(self):
        self.script({"name": "get_weather", "arguments": {"city": ".."}}, "I cannot say.")
        self.assertEqual(self.agent.chat("How is the weather?").json["output"], "I cannot say.")
        self.assertEqual(self.server.asked, [])
        self.assertIn("must not be", json.dumps(self.model.bodies[1]["messages"]))

    def test_an_evaluation_calls_nothing_that_changes_something(self):
        for name, asked, headers in (
            ("get_weather", ["GET"], {"x_slipway_evaluation": "ev_1"}),
            ("order_weather", [], {"x_slipway_evaluation": "ev_1"}),
            ("order_weather", ["POST"], {}),
        ):
            self.script({"name": name, "arguments": {"city": "Bern"}}, "Done.")
            answer = self.agent.ask("POST", "/chat", {"message": "Order it."}, **headers)
            self.assertEqual(answer.json["output"], "Done.", answer.body)
            self.assertEqual([method for method, *_ in self.server.asked], asked, name)

    def test_a_model_that_fails_is_a_502_without_its_words(self):
        self.script(*[401] * 8)
        answer = self.agent.chat("hello")
        self.assertEqual(answer.status, 502)
        self.assertIn("401", answer.json["message"])
        self.assertNotIn("sk-planted", answer.body.decode() + self.agent.said())

    def test_a_conversation_is_remembered_if_that_was_asked_for(self):
        self.script("First.", "Second.")
        for message in ("My name is Ada.", "Who am I?"):
            self.agent.chat(message, conversation_id="conv_1")
        remembered = "My name is Ada." in json.dumps(self.model.bodies[1]["messages"])
        self.assertEqual(remembered, "memory" in PROJECT["capabilities"])

    def test_the_caller_of_chat_completions_keeps_the_conversation(self):
        self.script("Ada.")
        said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "I am Ada."}, {"role": "assistant", "content": "Hi."}]
        asked = {"messages": [*said, {"role": "user", "content": "Who am I?"}]}
        answer = self.agent.ask("POST", "/v1/chat/completions", asked)
        self.assertEqual(answer.json["choices"][0]["message"]["content"], "Ada.", answer.body)
        sent = json.dumps(self.model.bodies[0]["messages"])
        for words in ("You are a weather person.", "Be brief.", "I am Ada.", "Hi.", "Who am I?"):
            self.assertIn(words, sent)


class Keys(unittest.TestCase):
    def test_a_server_that_an_integration_gives_is_asked_with_its_key_alone(self):
        model = ScriptedModel()
        for given, expected in (({}, "Bearer sk-planted"), ({"RUNTIME_MODEL_API_KEY": ""}, "Bearer none")):
            model.script[:], model.asked[:] = ["Here I am."], []
            agent = Running(**{**model.integration, **given}).ready()
            answer = agent.chat("hello")
            agent.stop()
            self.assertEqual(answer.json.get("output"), "Here I am.", answer.body)
            self.assertEqual([headers["authorization"] for method, _, headers, _ in model.asked if method == "POST"], [expected])
        model.close()

    def test_a_key_that_is_missing_is_named(self):
        agent = Running(RUNTIME_MODEL_TYPE="openai", RUNTIME_MODEL_ID="gpt-4o").ready()
        answer = agent.chat("hello")
        agent.stop()
        self.assertEqual(answer.status, 502)
        self.assertIn("OPENAI_API_KEY", answer.json["message"])


if __name__ == "__main__":
    unittest.main()
