"""Makes an experiment with a run and a trace in MLflow, and reads them back: experiment.py URL."""

import sys

import mlflow

mlflow.set_tracking_uri(sys.argv[1])
experiment = mlflow.set_experiment("greeting")
with mlflow.start_run() as run:
    mlflow.log_metric("safety/mean", 0.75)
with mlflow.start_span(name="invoke_agent") as span:
    span.set_inputs({"question": "who"})
mlflow.flush_trace_async_logging()
print(mlflow.get_run(run.info.run_id).data.metrics["safety/mean"])
traces = mlflow.search_traces(locations=[experiment.experiment_id], return_type="list")
print([span.name for trace in traces for span in trace.data.spans])
