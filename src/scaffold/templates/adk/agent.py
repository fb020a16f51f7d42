"""The agent, by Google's Agent Development Kit: an LlmAgent, its tools, and a Runner. model.py asks the model."""

import asyncio

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.events import Event
from google.adk.runners import InMemoryRunner
from google.adk.tools.base_tool import BaseTool
from google.genai import types
from model import OpenAiModel
from slipway_contract import serve

NAME = "agent"


def answer(turn):
    """One turn: the answer is sent as the model makes it."""
    asyncio.run(talk(turn))


async def talk(turn):
    agent = LlmAgent(
        name=NAME,
        model=OpenAiModel(model=turn.model.id, turn=turn),
        # Not as a text, in which ADK would take {braces} for variables.
        instruction=lambda _context: turn.system,
        tools=[Wrapped(tool) for tool in turn.tools],
    )
    runner = InMemoryRunner(agent, app_name=NAME)
    sessions = runner.session_service
    session = await sessions.create_session(app_name=NAME, user_id="user")
    for message in turn.messages[:-1]:
        author = NAME if message["role"] == "assistant" else "user"
        await sessions.append_event(session, Event(author=author, content=said(message["role"], message["content"])))
    config = RunConfig(streaming_mode=StreamingMode.SSE, max_llm_calls=turn.settings.max_rounds)
    question = said("user", turn.message)
    async for event in runner.run_async(user_id="user", session_id=session.id, new_message=question, run_config=config):
        if event.partial and event.content:
            turn.token("".join(part.text or "" for part in event.content.parts or []))
        if event.usage_metadata and not event.partial:
            turn.count(event.usage_metadata.prompt_token_count, event.usage_metadata.candidates_token_count)


def said(role, text):
    return types.Content(role="model" if role == "assistant" else "user", parts=[types.Part(text=text)])


class Wrapped(BaseTool):
    """A Tool of the platform as one of ADK's."""

    def __init__(self, tool):
        super().__init__(name=tool.name, description=tool.description)
        self.tool = tool

    def _get_declaration(self):
        return types.FunctionDeclaration(name=self.name, description=self.description, parameters_json_schema=self.tool.schema)

    async def run_async(self, *, args, tool_context):
        return {"result": await asyncio.to_thread(self.tool.call, args)}


if __name__ == "__main__":
    serve(answer)
