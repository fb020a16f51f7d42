"""What agent.py does with its model and its tools. The model answers by script, over the protocol that providers speak."""

import json
import unittest

from tests.stage import FOLDER, Running, ScriptedModel, ToolServer

PROJECT = json.loads((FOLDER / "project.json").read_text(encoding="utf-8"))


class Stage:
    """An agent with a scripted model, and the server of its tools."""

    def __init__(self, *script, method="GET", **variables):
        self.model, self.server = ScriptedModel(*script), ToolServer()
        tool = {
            "name": "get_weather", "type": "http", "category": "data", "description": "The weather of a city.", "method": method,
            "endpoint": self.server.url + "/weather/{city}?lang=en", "timeout": 5, "headersFrom": {"X-Key": "WEATHER_KEY"},
            "parameters": [{"name": "city", "type": "string", "required": True}, {"name": "days", "type": "integer"}],
        }  # fmt: skip
        given = {"RUNTIME_TOOLS": json.dumps([tool]), "WEATHER_KEY": "planted-key", "RUNTIME_SYSTEM_PROMPT": "You are a weather person."}
        self.agent = Running(**{**self.model.variables, **given, **variables}).ready()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.agent.stop()
        self.model.close()
        self.server.close()


class Answers(unittest.TestCase):
    def test_the_model_gets_instructions_and_message_and_is_counted(self):
        with Stage("It rains.") as stage:
            answer = stage.agent.chat("How is the weather?")
            self.assertEqual(answer.status, 200, answer.body)
            self.assertEqual(answer.json["output"], "It rains.")
            self.assertEqual(answer.json["usage"], {"input_tokens": 7, "output_tokens": 3})
            sent = json.dumps(stage.model.bodies[0]["messages"])
            self.assertIn("You are a weather person.", sent)
            self.assertIn("How is the weather?", sent)
            self.assertEqual(stage.model.bodies[0]["model"], "scripted")

    def test_a_tool_is_called_and_its_result_goes_to_the_model(self):
        with Stage({"name": "get_weather", "arguments": {"city": "São Paulo/..", "days": 2}}, "It is sunny there.") as stage:
            events = stage.agent.chat("How is the weather?", "/chat/stream").events
            self.assertEqual(events[-1]["content"], "It is sunny there.", events)
            method, path, headers, _ = stage.server.asked[0]
            self.assertEqual((method, path), ("GET", "/weather/S%C3%A3o%20Paulo%2F..?lang=en&days=2"))
            self.assertEqual(headers["x-key"], "planted-key")
            self.assertIn("It is sunny.", json.dumps(stage.model.bodies[1]["messages"]))
            told = {event["type"]: event for event in events}
            self.assertEqual(told["tool_start"]["arguments"], {"city": "São Paulo/..", "days": 2})
            self.assertEqual((told["tool_end"]["content"], told["tool_end"]["is_error"]), ("It is sunny.", False))
            self.assertEqual(told["tool_end"]["id"], told["tool_start"]["id"])
            self.assertNotIn("planted", stage.agent.said())

    def test_arguments_that_do_not_fit_go_back_to_the_model(self):
        with Stage({"name": "get_weather", "arguments": {"city": ".."}}, "I cannot say.") as stage:
            self.assertEqual(stage.agent.chat("How is the weather?").json["output"], "I cannot say.")
            self.assertEqual(stage.server.asked, [])
            self.assertIn("must not be", json.dumps(stage.model.bodies[1]["messages"]))

    def test_an_evaluation_calls_nothing_that_changes_something(self):
        script = [{"name": "get_weather", "arguments": {"city": "Bern"}}, "Done."]
        for method, asked in (("GET", 1), ("POST", 0)):
            with Stage(*script, method=method) as stage:
                answer = stage.agent.ask("POST", "/chat", {"message": "Order it.", "conversation_id": "c1"}, x_slipway_evaluation="ev_1")
                self.assertEqual(answer.json["output"], "Done.", answer.body)
                self.assertEqual(len(stage.server.asked), asked, method)

    def test_a_model_that_fails_is_a_502_without_its_words(self):
        with Stage(*[401] * 8) as stage:
            answer = stage.agent.chat("hello")
            self.assertEqual(answer.status, 502)
            self.assertIn("401", answer.json["message"])
            self.assertNotIn("sk-planted", answer.body.decode() + stage.agent.said())

    def test_a_key_that_is_missing_is_named(self):
        agent = Running(RUNTIME_MODEL_TYPE="openai", RUNTIME_MODEL_ID="gpt-4o").ready()
        answer = agent.chat("hello")
        self.assertEqual(answer.status, 502)
        self.assertIn("OPENAI_API_KEY", answer.json["message"])
        agent.stop()

    def test_a_conversation_is_remembered_if_that_was_asked_for(self):
        with Stage("First.", "Second.") as stage:
            for message in ("My name is Ada.", "Who am I?"):
                stage.agent.chat(message, conversation_id="conv_1")
            remembered = "My name is Ada." in json.dumps(stage.model.bodies[1]["messages"])
            self.assertEqual(remembered, "memory" in PROJECT["capabilities"])

    def test_the_caller_of_chat_completions_keeps_the_conversation(self):
        with Stage("Ada.") as stage:
            said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "I am Ada."}, {"role": "assistant", "content": "Hi."}]
            asked = {"messages": [*said, {"role": "user", "content": "Who am I?"}]}
            answer = stage.agent.ask("POST", "/v1/chat/completions", asked)
            self.assertEqual(answer.json["choices"][0]["message"]["content"], "Ada.", answer.body)
            sent = json.dumps(stage.model.bodies[0]["messages"])
            for words in ("You are a weather person.", "Be brief.", "I am Ada.", "Hi.", "Who am I?"):
                self.assertIn(words, sent)


if __name__ == "__main__":
    unittest.main()
