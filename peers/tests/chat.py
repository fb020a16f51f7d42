"""Asks an OpenAI-compatible server twice, whole and streamed: chat.py BASE_URL."""

import sys

import anthropic
import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="any", max_retries=0)
question = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Is anybody there?"}]}
whole = client.chat.completions.create(**question)
pieces = client.chat.completions.create(**question, stream=True)
print(whole.choices[0].message.content)
print("".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices))
print(anthropic.__name__)
