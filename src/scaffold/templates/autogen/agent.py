"""The agent, by AutoGen: an AssistantAgent with the platform's tools."""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import ModelClientStreamingChunkEvent, TextMessage
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import AssistantMessage, UserMessage
from autogen_core.tools import BaseTool
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import BaseModel
from slipway_contract import serve


def answer(turn):
    """One turn: the answer is sent as the model makes it."""
    asyncio.run(talk(turn))


async def talk(turn):
    client = model(turn)
    try:
        agent = AssistantAgent(
            "agent",
            client,
            tools=[Wrapped(tool) for tool in turn.tools],
            system_message=turn.system or None,
            model_context=UnboundedChatCompletionContext(initial_messages=[said(message) for message in turn.messages[:-1]]),
            model_client_stream=True,
            # The round after the last calls answers without tools.
            max_tool_iterations=turn.settings.max_rounds,
            reflect_on_tool_use=True,
        )
        streamed = False
        async for event in agent.run_stream(task=turn.message):
            if isinstance(event, ModelClientStreamingChunkEvent):
                turn.token(event.content)
                streamed = True
            elif isinstance(event, TaskResult) and not streamed and isinstance(event.messages[-1], TextMessage):
                turn.token(event.messages[-1].content)
    finally:
        usage = client.total_usage()
        turn.count(usage.prompt_tokens, usage.completion_tokens)
        await client.close()


def model(turn):
    """The client of the model that the pod's variables name, by OpenAI's protocol."""
    limits = {"max_tokens": turn.settings.max_output_tokens} if turn.settings.max_output_tokens else {}
    features = {"vision": False, "function_calling": True, "json_output": False, "structured_output": False, "family": "unknown"}
    return OpenAIChatCompletionClient(
        model=turn.model.id,
        base_url=turn.model.base_url,
        api_key=turn.model.key,
        model_info=features,
        include_name_in_message=False,
        stream_options={"include_usage": True},
        timeout=turn.settings.turn_seconds,
        **limits,
    )


def said(message):
    if message["role"] == "assistant":
        return AssistantMessage(content=message["content"], source="agent")
    return UserMessage(content=message["content"], source="user")


class Wrapped(BaseTool[BaseModel, str]):
    """A Tool of the platform as one of AutoGen's. Its arguments are checked by the platform's schema."""

    def __init__(self, tool):
        super().__init__(BaseModel, str, tool.name, tool.description)
        self.tool = tool

    @property
    def schema(self):
        return {"name": self.tool.name, "description": self.tool.description, "parameters": self.tool.schema, "strict": False}

    async def run(self, args, cancellation_token):
        return await self.run_json(args.model_dump(), cancellation_token)

    async def run_json(self, args, cancellation_token, call_id=None):
        return await asyncio.to_thread(self.tool.call, dict(args))


if __name__ == "__main__":
    serve(answer)
