"""A model of ADK's that speaks OpenAI's chat completions protocol, as the servers of all four providers do."""

import json
from typing import Any

from google.adk.models import BaseLlm, LlmResponse
from google.genai import types
from openai import AsyncOpenAI


class OpenAiModel(BaseLlm):
    turn: Any

    async def generate_content_async(self, llm_request, stream=False):
        """Fragments of text as they come, then the whole: text, calls of tools, and what they took."""
        settings = self.turn.settings
        client = AsyncOpenAI(base_url=self.turn.model.base_url, api_key=self.turn.model.key, timeout=settings.turn_seconds)
        asked = {"model": self.model, "messages": messages(llm_request), "stream": True, "stream_options": {"include_usage": True}}
        tools = [tool for group in llm_request.config.tools or [] for tool in group.function_declarations or []]
        if tools:
            asked["tools"] = [declared(tool) for tool in tools]
        if settings.max_output_tokens:
            asked["max_tokens"] = settings.max_output_tokens
        text, calls, usage = "", {}, None
        async with client:
            async for chunk in await client.chat.completions.create(**asked):
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    if choice.delta.content:
                        text += choice.delta.content
                        part = types.Part(text=choice.delta.content)
                        yield LlmResponse(content=types.Content(role="model", parts=[part]), partial=True)
                    for call in choice.delta.tool_calls or []:
                        kept = calls.setdefault(call.index, {"id": "", "name": "", "arguments": ""})
                        kept["id"] = call.id or kept["id"]
                        kept["name"] += call.function.name or ""
                        kept["arguments"] += call.function.arguments or ""
        parts = [types.Part(text=text)] if text else []
        parts += [types.Part(function_call=called(calls[index])) for index in sorted(calls)]
        took = None
        if usage:
            took = types.GenerateContentResponseUsageMetadata(
                prompt_token_count=usage.prompt_tokens,
                candidates_token_count=usage.completion_tokens,
                total_token_count=usage.total_tokens,
            )
        yield LlmResponse(content=types.Content(role="model", parts=parts), usage_metadata=took, partial=False)


def called(call):
    try:
        arguments = json.loads(call["arguments"] or "{}")
    except ValueError:
        arguments = {"arguments": call["arguments"]}
    return types.FunctionCall(id=call["id"], name=call["name"], args=arguments if isinstance(arguments, dict) else {"arguments": arguments})


def declared(tool):
    return {"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters_json_schema}}


def messages(request):
    """ADK's contents in OpenAI's words."""
    system = request.config.system_instruction
    said = [{"role": "system", "content": system}] if system else []
    for content in request.contents:
        parts = content.parts or []
        text = "".join(part.text or "" for part in parts)
        calls = [part.function_call for part in parts if part.function_call]
        results = [part.function_response for part in parts if part.function_response]
        if calls:
            functions = [{"name": call.name, "arguments": json.dumps(call.args or {})} for call in calls]
            listed = [{"id": call.id, "type": "function", "function": function} for call, function in zip(calls, functions, strict=True)]
            said.append({"role": "assistant", "content": text or None, "tool_calls": listed})
        elif text:
            said.append({"role": "assistant" if content.role == "model" else "user", "content": text})
        said += [{"role": "tool", "tool_call_id": result.id, "content": json.dumps(result.response)} for result in results]
    return said
