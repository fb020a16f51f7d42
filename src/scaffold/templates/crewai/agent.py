"""The agent, by CrewAI: a crew of one agent and one task. Its answer is sent when the crew is done."""

import os

# Nothing about the crew is sent anywhere, and nothing is kept but in /tmp.
os.environ.update({"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "true"})
os.environ.update({"CREWAI_DISABLE_VERSION_CHECK": "true", "CREWAI_STORAGE_DIR": "/tmp/crewai"})
os.environ.setdefault("HOME", "/tmp")

from crewai import LLM, Agent, Crew, Task  # noqa: E402
from crewai.tools import BaseTool  # noqa: E402
from pydantic import Field, create_model  # noqa: E402
from slipway_contract import serve  # noqa: E402

TYPES = {"string": str, "integer": int, "number": float, "boolean": bool}


def answer(turn):
    """One turn: the crew works, then its answer is sent in one fragment."""
    llm = model(turn)
    agent = Agent(
        role="assistant",
        goal="Answer the person's message.",
        backstory=turn.system or "You are a helpful assistant.",
        llm=llm,
        tools=[wrapped(tool) for tool in turn.tools],
        max_iter=turn.settings.max_rounds,
        max_execution_time=turn.settings.turn_seconds,
        verbose=False,
        # Another task would call its tools again.
        max_retry_limit=0,
    )
    task = Task(description=described(turn.messages), expected_output="The answer, as plain text.", agent=agent)
    result = Crew(agents=[agent], tasks=[task], verbose=False, memory=False).kickoff()
    turn.count(result.token_usage.prompt_tokens, result.token_usage.completion_tokens)
    turn.token(result.raw)


def model(turn):
    """CrewAI's own client of OpenAI's protocol, which all four providers speak."""
    limits = {"max_tokens": turn.settings.max_output_tokens} if turn.settings.max_output_tokens else {}
    given = {"base_url": turn.model.base_url, "api_key": turn.model.key, "timeout": turn.settings.turn_seconds}
    return LLM(model=turn.model.id, provider="openai", **given, **limits)


def described(messages):
    """A crew has tasks and no conversation: what was said before stands in the task."""
    *earlier, last = messages
    if not earlier:
        return last["content"]
    said = "\n".join(f"{message['role']}: {message['content']}" for message in earlier)
    return f"The conversation so far:\n{said}\n\nThe person's message now:\n{last['content']}"


def wrapped(tool):
    """A Tool of the platform as one of CrewAI's. Its arguments are checked by the platform's schema."""
    fields = {}
    for name, schema in tool.schema["properties"].items():
        kind, about = TYPES[schema["type"]], Field(description=schema.get("description"))
        if name not in tool.schema["required"]:
            kind, about = kind | None, Field(default=None, description=schema.get("description"))
        fields[name] = (kind, about)

    class Wrapped(BaseTool):
        def _run(self, **arguments):
            return tool.call({key: value for key, value in arguments.items() if value is not None})

    return Wrapped(name=tool.name, description=tool.description, args_schema=create_model(f"Arguments_{tool.name}", **fields))


if __name__ == "__main__":
    serve(answer)
