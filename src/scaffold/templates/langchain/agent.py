"""The agent, by LangChain: a model, its tools, and a graph that lets them speak until there is an answer."""

from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk
from langchain_core.tools import StructuredTool
from slipway_contract import serve


def answer(turn):
    """One turn: the answer is sent as the model makes it."""
    agent = create_agent(model(turn), [wrapped(tool) for tool in turn.tools], system_prompt=turn.system or None)
    # A round is a step of the model and one of its tools.
    limits = {"recursion_limit": 2 * turn.settings.max_rounds + 1}
    for part, _ in agent.stream({"messages": turn.messages}, limits, stream_mode="messages"):
        if isinstance(part, AIMessageChunk):
            turn.token(part.text)
            if part.usage_metadata:
                turn.count(part.usage_metadata["input_tokens"], part.usage_metadata["output_tokens"])


def model(turn):
    """The chat model that the pod's variables name."""
    common = {"model": turn.model.id, "api_key": turn.model.key, "max_retries": 2, "timeout": turn.settings.turn_seconds}
    if turn.settings.max_output_tokens:
        common["max_tokens"] = turn.settings.max_output_tokens
    if turn.model.kind == "anthropic":
        from langchain_anthropic import ChatAnthropic

        return ChatAnthropic(base_url=turn.model.base_url.removesuffix("/v1"), **common)
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(base_url=turn.model.base_url, stream_usage=True, **common)


def wrapped(tool):
    """A Tool of the platform as one of LangChain's."""

    def call(**arguments):
        return tool.call(arguments)

    return StructuredTool.from_function(call, name=tool.name, description=tool.description, args_schema=tool.schema)


if __name__ == "__main__":
    serve(answer)
