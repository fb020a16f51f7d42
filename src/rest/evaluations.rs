//! Evaluations of agents: begin, list, get, compare, cancel and delete. A run is a resource; the evaluation controller does
//! the rest and writes its status.
//!
//! `request` reads the body, `view` is the form of a run, `comparison` sets two side by side, `profiles` lists the risk
//! profiles, `callback` passes on what runtimes report.

pub(crate) mod callback;
mod comparison;
pub(crate) mod profiles;
mod request;
mod view;

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kube::ResourceExt;
use kube::api::{Api, ObjectMeta};
use serde_json::json;
use slipway_api::{Agent, Dataset, EvaluationRun, EvaluationRunSpec, ids, labels, names};
use slipway_http::{Error, StatusCode};

use crate::agents::{self, Deleted};
use crate::answer::{Created, Data};
use crate::call::{Call, Maybe};
use crate::datasets::Purpose;
use crate::list_cache::{ListCache, ListEntry};
use crate::page::{Page, page_of};
use crate::permission::Right;
use crate::route::Parameter;
use crate::{cluster_error, gitops, random, releases, write};

pub(crate) use comparison::{BOTH, compare};
use request::{NewRun, WantedRun};
pub(crate) use view::{RunScores, RunState, item};
use view::{Status, Summary, View};

pub(crate) const LIST: Right = Right::on("list", "evaluationruns");
pub(crate) const GET: Right = Right::on("get", "evaluationruns");
pub(crate) const CREATE: Right = Right::on("create", "evaluationruns");
pub(crate) const CHANGE: Right = Right::on("patch", "evaluationruns");
pub(crate) const DELETE: Right = Right::on("delete", "evaluationruns");

/// As every list takes them, and one more.
pub(crate) const LISTED: &[Parameter] = &[
    crate::page::PAGED[0],
    crate::page::PAGED[1],
    crate::page::PAGED[2],
    Parameter { name: "status", about: "Only those that are pending, running, completed, failed or cancelled.", kind: "string" },
];

/// The end of the name of the dataset that is made for an agent that has none.
const SEED: &str = "-seed";

pub(crate) async fn list(mut call: Call) -> Result<Page<Summary>, Error> {
    let status = match call.query.text("status") {
        None => None,
        Some(text) => Some(
            Status::ALL
                .into_iter()
                .find(|status| status.as_str() == text)
                .ok_or_else(|| Error::bad_request("`status` must be pending, running, completed, failed or cancelled"))?,
        ),
    };
    let (context, namespace) = (call.context.clone(), call.namespace());
    let agent = agent_of(&call).await?;
    let belongs = |_: &str, run: &ListEntry<RunState>| *run.data.agent == *agent && status.is_none_or(|status| run.data.status == status);
    page_of(call, &context.caches.evaluations, Some(&namespace), belongs, |item| Ok(Cow::Borrowed(&*item.json))).await
}

pub(crate) async fn get(call: Call) -> Result<Data<View>, Error> {
    let run = find(&call).await?;
    let mut view = View::of(&run);
    if view.summary.dataset_name.is_none()
        && let Ok((agent, _)) = agents::find(&call).await
    {
        view.summary.dataset_name = Some(default_dataset(&agent, &call.namespace(), &call.context.caches.datasets));
    }
    Ok(Data::at(view, run.resource_version()))
}

/// Begins an evaluation of what the agent runs.
pub(crate) async fn create(call: Call<Maybe<NewRun>>) -> Result<Created<View>, Error> {
    let (call, Maybe(body)) = call.split();
    let WantedRun { dataset, version, spec } = body.read()?;
    let (agent, what) = agents::find(&call).await?;
    if let Some(version) = version {
        ensure_runs(&agent, version, &what)?;
    }
    let dataset = match dataset {
        Some(asked) => Some(existing(&call, &agent.name_any(), &asked).await?),
        None => None,
    };
    let slug = agent.name_any();
    let run = EvaluationRun {
        metadata: ObjectMeta {
            name: Some(name(&call)?),
            namespace: Some(call.namespace()),
            labels: Some([(labels::AGENT.to_owned(), slug.clone())].into()),
            ..ObjectMeta::default()
        },
        spec: EvaluationRunSpec { agent: slug, dataset, ..spec },
        status: None,
    };
    let made = write::create(&call, &api(&call), run, &format!("evaluation of {what}")).await?;
    let mut view = View::of(&made);
    view.summary.dataset_name.get_or_insert_with(|| default_dataset(&agent, &call.namespace(), &call.context.caches.datasets));
    Ok(Created(Data::at(view, made.resource_version())))
}

/// Ends a run that is under way.
pub(crate) async fn cancel(call: Call) -> Result<Data<View>, Error> {
    let run = find(&call).await?;
    let what = what(&run);
    let change = |run: &EvaluationRun| {
        gitops::refuse(&run.metadata, &what)?;
        match Status::of(run) {
            status @ (Status::Completed | Status::Failed) => {
                Err(Error::new(StatusCode::CONFLICT, format!("{what} is {} already", status.as_str())))
            }
            _ => Ok(json!({"spec": {"cancel": true}})),
        }
    };
    let run = write::change(&call, &api(&call), &run.name_any(), &what, change).await?;
    Ok(Data::at(View::of(&run), run.resource_version()))
}

pub(crate) async fn delete(call: Call) -> Result<Data<Deleted>, Error> {
    let run = find(&call).await?;
    let what = what(&run);
    gitops::refuse(&run.metadata, &what)?;
    let version = write::delete(&call, &api(&call), &run, &what).await?;
    Ok(Data::since(Deleted { id: ids::evaluation_run(&run.name_any()), deleted: true }, version))
}

/// 409 unless this release of the agent is active.
fn ensure_runs(agent: &Agent, version: u64, what: &str) -> Result<(), Error> {
    let active = releases::active(agent);
    if active == Some(version) {
        return Ok(());
    }
    let runs = active.map_or_else(|| "no release is active".to_owned(), |active| format!("v{active} is active"));
    let message = format!("version: only what {what} runs can be evaluated, and {runs}; deploy v{version} first, or leave `version` out");
    Err(Error::new(StatusCode::CONFLICT, message))
}

/// The name of the dataset that the caller names by name or id.
async fn existing(call: &Call, agent: &str, asked: &str) -> Result<String, Error> {
    let name = ids::dataset_name(asked);
    let missing = || Error::bad_request(format!("dataset_name: there is no dataset {asked:?}"));
    if !names::is_name(&name) {
        return Err(missing());
    }
    let datasets: Api<Dataset> = Api::namespaced(call.client(), &call.namespace());
    let found = datasets.get_opt(&name).await.map_err(|error| cluster_error::from_kube(error, &format!("dataset {name}")))?;
    match found.ok_or_else(missing)?.spec.agent {
        Some(other) if other != agent => Err(Error::bad_request(format!("dataset_name: dataset {name} is for agent {other} alone"))),
        _ => Ok(name),
    }
}

/// The dataset of a run that names none, as the operator finds it: the agent's, else the oldest that is for this agent alone, protected
/// ones before others, else the one that is made for it.
fn default_dataset(agent: &Agent, namespace: &str, datasets: &ListCache<Purpose>) -> String {
    let named = agent.spec.governance.as_ref().and_then(|governance| governance.eval_dataset.as_deref());
    if let Some(named) = named {
        return ids::dataset_name(named);
    }
    let slug = agent.name_any();
    let own = datasets.collect(Some(namespace), |_, name, dataset| {
        let purpose = &dataset.data;
        (purpose.agent.as_deref() == Some(slug.as_str())).then(|| (!purpose.is_protected, dataset.created, name.to_owned()))
    });
    own.into_iter().min().map_or_else(|| format!("{slug}{SEED}"), |(_, _, oldest)| oldest)
}

/// `ev-` and a ULID.
fn name(call: &Call) -> Result<String, Error> {
    Ok(format!("ev-{}", ulid(call)?))
}

/// A ULID in lower case, which follows from the Idempotency-Key if there is one.
pub(crate) fn ulid(call: &Call) -> Result<String, Error> {
    let (time, bits) = if let Some(digest) = write::key_digest(call) {
        let [head, tail] = [0, 16].map(|at| digest[at..at + 16].iter().fold(0, |number, byte| number << 8 | u128::from(*byte)));
        (UNIX_EPOCH + Duration::from_millis(u64::try_from(head >> 80).unwrap_or_default()), tail)
    } else {
        (SystemTime::now(), random::bits()?)
    };
    Ok(slipway_http::ulid(time, bits).to_string().to_lowercase())
}

fn api(call: &Call) -> Api<EvaluationRun> {
    Api::namespaced(call.client(), &call.namespace())
}

/// A run's name in messages.
fn what(run: &EvaluationRun) -> String {
    format!("evaluation {}", ids::evaluation_run(&run.name_any()))
}

/// The name of the path's agent, which must exist.
pub(crate) async fn agent_of(call: &Call) -> Result<String, Error> {
    match agents::cached(call) {
        Some((key, _)) => Ok(key.name),
        None => agents::find(call).await.map(|(agent, _)| agent.name_any()),
    }
}

/// The run of the path, whose agent may be deleted.
async fn find(call: &Call) -> Result<EvaluationRun, Error> {
    let asked = call.path.part("id");
    let agent = agents::name(call, asked).await?.ok_or_else(|| Error::not_found(format!("there is no agent {asked}")))?;
    named(call, &agent, call.path.part("run_id")).await
}

/// The run of the agent with this id or name.
async fn named(call: &Call, agent: &str, asked: &str) -> Result<EvaluationRun, Error> {
    let api = api(call);
    for name in names_of(asked).filter(|name| names::is_name(name)) {
        let found = api.get_opt(&name).await.map_err(|error| cluster_error::from_kube(error, &format!("evaluation {asked}")))?;
        if let Some(run) = found.filter(|run| run.spec.agent == agent) {
            return Ok(run);
        }
    }
    Err(Error::not_found(format!("there is no evaluation {asked} of agent {agent}")))
}

/// The names that the run of an id may have: an id does not tell `ev-nightly` from `nightly`.
pub(crate) fn names_of(asked: &str) -> impl Iterator<Item = String> + use<> {
    let names = match asked.strip_prefix("ev_") {
        Some(rest) => {
            let rest = rest.to_lowercase().replace('_', "-");
            [Some(format!("ev-{rest}")), Some(rest)]
        }
        None => [Some(asked.to_owned()), None],
    };
    names.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use slipway_cluster::Key;

    use super::*;

    #[test]
    fn a_run_is_found_by_id_and_by_name() {
        for name in ["ev-01jd8z7q3v5x9m2k4n6p8r0s1t", "nightly-2", "ev-nightly"] {
            let id = ids::evaluation_run(name);
            assert!(names_of(&id).any(|found| found == name), "{id}");
            assert_eq!(names_of(name).collect::<Vec<_>>(), [name]);
        }
        assert_eq!(names_of("ev_01JD8Z7Q").next().as_deref(), Some("ev-01jd8z7q"), "a ULID is the same in capitals");
    }

    #[test]
    fn only_what_runs_is_evaluated() {
        let agent = |status: serde_json::Value| -> Agent {
            serde_json::from_value(json!({"metadata": {"name": "h"}, "spec": {"name": "H", "framework": "custom"}, "status": status}))
                .unwrap()
        };
        assert!(ensure_runs(&agent(json!({"activeRelease": 3})), 3, "agent h").is_ok());
        for (status, says) in [(json!({"activeRelease": 3}), "v3 is active"), (json!({}), "no release is active")] {
            let refused = ensure_runs(&agent(status), 2, "agent h").unwrap_err();
            assert!(refused.status() == StatusCode::CONFLICT && refused.message().contains(says), "{}", refused.message());
        }
    }

    #[test]
    fn a_run_has_the_agents_dataset_or_its_oldest_or_the_seed() {
        let agent = |governance: serde_json::Value| -> Agent {
            serde_json::from_value(
                json!({"metadata": {"name": "h"}, "spec": {"name": "H", "framework": "custom", "governance": governance}}),
            )
            .unwrap()
        };
        let datasets = ListCache::default();
        let found = |governance| default_dataset(&agent(governance), "team-a", &datasets);
        let add = |namespace: &str, name: &str, created, agent: Option<&str>, is_protected| {
            let data = Purpose { agent: agent.map(Into::into), is_protected };
            datasets.insert(&Key::new(namespace, name), ListEntry { created, data, ..ListEntry::default() });
        };
        for (namespace, name, created, agent) in
            [("team-a", "shared", 1, None), ("team-a", "theirs", 1, Some("other")), ("team-b", "elsewhere", 1, Some("h"))]
        {
            add(namespace, name, created, agent, false);
        }
        assert_eq!(found(json!({})), "h-seed");
        for (name, created) in [("newest", 9), ("z-old", 3), ("old", 3)] {
            add("team-a", name, created, Some("h"), false);
        }
        assert_eq!(found(json!({})), "old");
        for (name, created) in [("newer", 8), ("held", 7)] {
            add("team-a", name, created, Some("h"), true);
        }
        assert_eq!(found(json!({})), "held", "whom a gate holds may write the others");
        assert_eq!(found(json!({"evalDataset": "ds_hard_cases"})), "hard-cases");
    }
}
