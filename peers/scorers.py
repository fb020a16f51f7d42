"""MLflow's own scorers, for comparison with ours.

    scorers.py score    REQUEST JUDGE            each scorer on each case; MLflow's version, the scores and the means
    scorers.py evaluate REQUEST JUDGE DATABASE   mlflow.genai.evaluate on the cases, with a database of MLflow's;
                                                 the seconds it took and the means

REQUEST is a JSON file with `scorers`, `guidelines`, `tools` and `cases`. JUDGE is the base URL of an OpenAI-compatible
server; the model that is asked has the scorer's name. The answer is JSON on standard output.
"""

import contextlib
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

mode, path, judge = sys.argv[1:4]
# MLflow's own limits of requests per second are lifted: nobody else uses the judge.
os.environ.update(OPENAI_API_BASE=judge, OPENAI_API_KEY="none")
os.environ.update(MLFLOW_GENAI_EVAL_PREDICT_RATE_LIMIT="0", MLFLOW_GENAI_EVAL_SCORER_RATE_LIMIT="0")

import mlflow
from mlflow.entities import Trace
from mlflow.genai import scorers
from mlflow.genai.evaluation.entities import EvalResult
from mlflow.genai.scorers.aggregation import compute_aggregated_metrics

with open(path, encoding="utf-8") as file:
    request = json.load(file)
cases = request["cases"]


def scorer(name, **settings):
    kind = getattr(scorers, "".join(word.capitalize() for word in name.split("_")))
    return kind(name=name, model=f"openai:/{name}", **settings)


def settings(name):
    return {"guidelines": request["guidelines"]} if name == "guidelines" else {}


all_scorers = [scorer(name, **settings(name)) for name in request["scorers"]]
# Where a case says what is to be called, that is compared, as ours is.
exact = scorer("tool_call_correctness", should_exact_match=True)


def trace(place, case):
    """A turn as MLflow records it: the tools that a model had, the calls of them, and what a search found."""
    whole = f"tr-{place + 1:032x}"

    def span(number, name, kind, **attributes):
        attributes |= {"mlflow.traceRequestId": whole, "mlflow.spanType": kind}
        return {
            "trace_id": whole.removeprefix("tr-"),
            "span_id": f"{number:016x}",
            "parent_span_id": None if number == 1 else f"{1:016x}",
            "name": name,
            "start_time_unix_nano": number,
            "end_time_unix_nano": number,
            "status": {"code": "OK"},
            "attributes": {name: json.dumps(value) for name, value in attributes.items()},
        }

    def said(inputs, outputs):
        return {"mlflow.spanInputs": inputs, "mlflow.spanOutputs": outputs}

    parameters = {"type": "object", "properties": {}}
    tools = [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in request["tools"]]
    spans = [
        span(1, "agent", "AGENT", **said(case["inputs"], case["outputs"])),
        span(2, "chat", "CHAT_MODEL", **{"mlflow.chat.tools": tools}),
    ]
    for number, call in enumerate(case["calls"], 3):
        spans.append(span(number, call["name"], "TOOL", **said(call["arguments"], call["result"])))
    if case["passages"]:
        documents = [{"page_content": passage, "metadata": {}} for passage in case["passages"]]
        spans.append(span(len(spans) + 1, "search", "RETRIEVER", **said({"query": "notes"}, documents)))
    info = {
        "trace_id": whole,
        "trace_location": {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "0"}},
        "request_time": "2026-01-01T00:00:00Z",
        "state": "OK",
    }
    return Trace.from_dict({"info": info, "data": {"spans": spans}})


def score(numbered):
    place, case = numbered
    turn = trace(place, case)
    found = {}
    for each in all_scorers:
        if each.name == exact.name and case["expectations"].get("expected_tool_calls"):
            each = exact
        given = {name: case[name] for name in ("inputs", "outputs", "expectations")}
        try:
            said = each.run(**given, trace=turn if "trace" in each.required_columns else None)
            # Of what was retrieved there is a list: a judgement for each passage or search, and the share of passages by a name of its own.
            found[each.name] = next(one for one in said if one.name == each.name) if isinstance(said, list) else said
        except Exception as error:
            found[each.name] = str(error)
    return found


def score_all():
    # More threads would only take turns: MLflow computes for longer than the judge does.
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(score, enumerate(cases)))
    counted = [
        EvalResult(eval_item=None, assessments=[by_scorer[name] for name in case["counted"]])
        for case, by_scorer in zip(cases, found, strict=True)
    ]
    told = [
        {name: {"error": said} if isinstance(said, str) else {"value": said.value} for name, said in by_scorer.items()}
        for by_scorer in found
    ]
    return {"version": mlflow.__version__, "scores": told, "means": compute_aggregated_metrics(counted, all_scorers)}


def evaluate(database):
    mlflow.set_tracking_uri(f"sqlite:///{database}")
    mlflow.set_experiment("evaluate")
    answers = {case["inputs"]["question"]: case["outputs"] for case in cases}
    data = [{"inputs": case["inputs"], "expectations": case["expectations"]} for case in cases]
    begun = time.monotonic()
    with contextlib.redirect_stdout(sys.stderr):
        result = mlflow.genai.evaluate(data=data, predict_fn=lambda question: answers[question], scorers=all_scorers)
    return {"seconds": time.monotonic() - begun, "means": result.metrics}


print(json.dumps(score_all() if mode == "score" else evaluate(sys.argv[4])))
