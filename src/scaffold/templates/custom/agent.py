"""The agent: asks the model, calls tools when it wants them, and says what it says. Only Python's standard library."""

import json
import urllib.error
import urllib.request

from slipway_contract import ModelFault, NoRedirects, serve

EVENT_BYTES = 1024 * 1024
# The key goes to the server that was named, and not where that sends one.
OPENER = urllib.request.build_opener(NoRedirects)


def answer(turn):
    """One turn: rounds of the model and its tools, until it answers with text alone."""
    messages = [{"role": "system", "content": turn.system}] if turn.system else []
    messages += turn.messages
    tools = {tool.name: tool for tool in turn.tools}
    for round_number in range(turn.settings.max_rounds):
        calls = ask(turn, messages, tools if round_number < turn.settings.max_rounds - 1 else {})
        if not calls:
            return
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        for call in calls:
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": run(call["function"], tools)})


def ask(turn, messages, tools):
    """Sends the text of one round as it comes; returns the calls that the model wants."""
    body = {"model": turn.model.id, "messages": messages, "stream": True, "stream_options": {"include_usage": True}}
    if tools:
        body["tools"] = [
            {"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema}}
            for tool in tools.values()
        ]
    if turn.settings.max_output_tokens:
        body["max_tokens"] = turn.settings.max_output_tokens
    request = urllib.request.Request(
        turn.model.base_url + "/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {turn.model.key}"},
    )
    calls = {}
    try:
        with OPENER.open(request, timeout=turn.settings.turn_seconds) as stream:
            for chunk in events(stream):
                usage = chunk.get("usage")
                if usage:
                    turn.count(usage.get("prompt_tokens"), usage.get("completion_tokens"))
                for choice in chunk.get("choices") or []:
                    delta = choice.get("delta") or {}
                    turn.token(delta.get("content"))
                    collect(calls, delta.get("tool_calls") or [])
    except urllib.error.HTTPError as error:
        raise ModelFault(f"{turn.model.kind} answers with status {error.code}") from None
    except (OSError, ValueError) as error:
        raise ModelFault(f"{turn.model.kind} did not answer: {type(getattr(error, 'reason', error)).__name__}") from None
    return [calls[index] for index in sorted(calls)]


def events(stream):
    """The JSON of each server-sent event."""
    while line := stream.readline(EVENT_BYTES):
        if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
            yield json.loads(line[5:])


def collect(calls, deltas):
    """Puts the fragments of tool calls together."""
    for delta in deltas:
        empty = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        call, part = calls.setdefault(delta.get("index", 0), empty), delta.get("function") or {}
        call["id"] = delta.get("id") or call["id"]
        call["function"]["name"] += part.get("name") or ""
        call["function"]["arguments"] += part.get("arguments") or ""


def run(function, tools):
    """The result of a call, or the words that say why there is none."""
    tool = tools.get(function["name"])
    if tool is None:
        return "error: there is no such tool"
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        return "error: the arguments are not a JSON object"
    return tool.call(arguments)


if __name__ == "__main__":
    serve(answer)
