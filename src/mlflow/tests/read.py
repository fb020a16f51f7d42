"""What MLflow's own client finds in an experiment, as JSON: read.py URL EXPERIMENT."""

import json
import sys

import mlflow
from mlflow.genai.datasets import search_datasets

mlflow.set_tracking_uri(sys.argv[1])
client = mlflow.MlflowClient()
experiment = client.get_experiment_by_name(sys.argv[2])
scope = [experiment.experiment_id]


def a_run(run):
    inputs = [[used.dataset.name, used.dataset.digest] for used in run.inputs.dataset_inputs]
    linked = mlflow.search_traces(run_id=run.info.run_id, locations=scope, return_type="list")
    return {
        "id": run.info.run_id,
        "name": run.info.run_name,
        "status": run.info.status,
        "start": run.info.start_time,
        "end": run.info.end_time,
        "params": run.data.params,
        "metrics": run.data.metrics,
        "history": {key: len(client.get_metric_history(run.info.run_id, key)) for key in run.data.metrics},
        "tags": run.data.tags,
        "inputs": inputs,
        "traces": sorted(trace.info.trace_id for trace in linked),
    }


def an_assessment(found):
    return {
        "name": found.name,
        "value": found.value,
        "error": found.error.error_message if found.error else None,
        "rationale": found.rationale,
        "source": [found.source.source_type, found.source.source_id],
        "run": (found.metadata or {}).get("mlflow.assessment.sourceRunId"),
        "own": {key: value for key, value in (found.metadata or {}).items() if key.startswith("slipway.")},
    }


def a_dataset(dataset):
    records = dataset.to_df()
    columns = [column for column in ("inputs", "expectations", "tags") if column in records]
    return {"name": dataset.name, "tags": dataset.tags, "records": records[columns].to_dict("records")}


runs = client.search_runs(scope)
traces = mlflow.search_traces(locations=scope, return_type="list")
answer = {
    "runs": [a_run(run) for run in runs],
    "traces": {trace.info.trace_id: sorted(map(an_assessment, trace.info.assessments), key=lambda one: one["name"]) for trace in traces},
    "datasets": [a_dataset(dataset) for dataset in search_datasets(experiment_ids=scope)],
}
print(json.dumps(answer))
