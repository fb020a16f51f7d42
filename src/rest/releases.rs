//! Releases of agents: create, list, get, compare and deploy. The state role makes and stores them; a request is made by a
//! resource, and waited for briefly.
//!
//! `artifact_view` is the form of an artifact, `wait` waits for the state role, `versions` lists configurations.

mod artifact_view;
mod deploy;
pub(crate) mod versions;
mod wait;

use kube::ResourceExt;
use kube::api::{Api, ObjectMeta};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use slipway_api::{Agent, AgentRelease, AgentReleaseSpec, ReleasePhase, labels};
use slipway_http::{Error, Reply, StatusCode};
use slipway_release::wire::{Entry, MOST};
use slipway_release::{Artifact, Change, diff as differences};

use crate::access::Caller;
use crate::agents;
use crate::answer::{Answer, Data, Made};
use crate::call::{Call, Maybe};
use crate::permission::Right;
use crate::route::Parameter;
use crate::write;

use artifact_view::ArtifactView;
pub(crate) use deploy::{active, deploy, wish};
pub(crate) use wait::until;

pub(crate) const LIST: Right = Right::on("list", "agentreleases");
pub(crate) const GET: Right = Right::on("get", "agentreleases");
pub(crate) const CREATE: Right = Right::on("create", "agentreleases");

pub(crate) const BETWEEN: &[Parameter] = &[
    Parameter { name: "from", about: "The version to begin with.", kind: "integer" },
    Parameter { name: "to", about: "The version to compare it with.", kind: "integer" },
];

const DEFAULT_LIMIT: usize = 100;
/// The number of hex digits of a hash in a name.
const HASH_DIGITS: usize = 10;
/// The limit of the resource's field.
const AUTHOR_LEN_MAX: usize = 256;

/// A release in a list, without what it holds.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ReleaseSummary")]
pub(crate) struct Summary {
    pub version: u64,
    /// The version before it; 0 for the first.
    pub previous: u64,
    /// Where it stands now.
    pub status: ReleasePhase,
    /// Why, where there is something to say.
    pub reason: Option<String>,
    pub author: String,
    pub timestamp: String,
    pub changelog: String,
    /// SHA-256 of the artifact.
    pub checksum: String,
    /// The commit that brought it into the team's repository.
    pub commit: String,
}

impl From<Entry> for Summary {
    fn from(entry: Entry) -> Self {
        let changelog = entry.changelog_with_reason();
        let Entry { version, previous, status, reason, author, timestamp, checksum, commit, .. } = entry;
        Self { version, previous, status, reason, author, timestamp: timestamp.to_string(), changelog, checksum, commit }
    }
}

/// A page from the state role. It is read for each call, so that no resource version applies.
#[derive(Serialize)]
pub(crate) struct Listed<T> {
    data: Vec<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl<T: Serialize + JsonSchema + Send + 'static> Answer for Listed<T> {
    fn form(generator: &mut SchemaGenerator) -> Schema {
        crate::page::form::<T>(generator)
    }

    fn reply(self) -> Result<Reply, Error> {
        Reply::json(&self)
    }
}

pub(crate) async fn list(call: Call) -> Result<Listed<Summary>, Error> {
    let (call, mut name) = named(call).await?;
    let (entries, next_cursor) = entries(&call, &mut name).await?;
    Ok(Listed { data: entries.into_iter().map(Summary::from).collect(), next_cursor })
}

pub(crate) async fn get(call: Call) -> Result<Data<ArtifactView>, Error> {
    let version = version(&call)?;
    let (call, Named { slug, .. }) = named(call).await?;
    let release = call.context.state.release(&call.namespace(), &slug, version).await?;
    ArtifactView::of(&artifact(&release.artifact)?, &release.entry).map(Data::new)
}

/// How two releases differ in one value.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ReleaseChange")]
pub(crate) struct Difference {
    /// With dots between its steps.
    path: String,
    /// Null where there was none.
    from: serde_json::Value,
    to: serde_json::Value,
}

impl From<Change> for Difference {
    fn from(Change { path, from, to }: Change) -> Self {
        Self { path, from, to }
    }
}

pub(crate) async fn diff(call: Call) -> Result<Data<Vec<Difference>>, Error> {
    let (call, Named { slug, mut query, .. }) = named(call).await?;
    let mut wanted = |name: &str| {
        let text = query.text(name).ok_or_else(|| Error::bad_request(format!("`{name}` is required: the number of a version")))?;
        text.parse::<u64>().map_err(|_| Error::bad_request(format!("`{name}` must be the number of a version")))
    };
    let (from, to) = (wanted("from")?, wanted("to")?);
    query.end()?;
    let (state, namespace) = (&call.context.state, call.namespace());
    let (from, to) = tokio::try_join!(state.release(&namespace, &slug, from), state.release(&namespace, &slug, to))?;
    let found = differences(&artifact(&from.artifact)?, &artifact(&to.artifact)?);
    Ok(Data::new(found.into_iter().map(Difference::from).collect()))
}

/// What to say of a release that is asked for.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRelease {
    /// What changed and why.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    changelog: Option<String>,
}

/// Requests a release of the agent, and waits for it.
pub(crate) async fn create(call: Call<Maybe<NewRelease>>) -> Result<Made<ArtifactView>, Error> {
    let (call, Maybe(NewRelease { changelog })) = call.split();
    let (agent, what) = agents::find(&call).await?;
    let status = agent.status.clone().unwrap_or_default();
    if agent.stopped_by().is_some() && status.active_release.is_none() && status.first_deployed_at.is_none() {
        let message = format!("{what} was never deployed, so there is nothing to release; deploy it, which makes its first release");
        return Err(Error::new(StatusCode::CONFLICT, message));
    }
    let api: Api<AgentRelease> = Api::namespaced(call.client(), &call.namespace());
    let made = write::create(&call, &api, wanted(&call, &agent, changelog), &format!("release of {what}")).await?;
    let wait::Released { version, is_new } = wait::released(&call, &api, &made, &what).await?;
    let release = call.context.state.release(&call.namespace(), &agent.name_any(), version).await?;
    ArtifactView::of(&artifact(&release.artifact)?, &release.entry).map(|shape| Made { data: Data::new(shape), is_new })
}

/// The resource that requests a release. The same key gives the same name.
fn wanted(call: &Call, agent: &Agent, changelog: Option<String>) -> AgentRelease {
    let slug = agent.name_any();
    let key = write::key_digest(call).map(|digest| {
        let mut digits = hex::encode(digest);
        digits.truncate(HASH_DIGITS);
        format!("{slug}-{digits}")
    });
    AgentRelease {
        metadata: ObjectMeta {
            generate_name: if key.is_some() { None } else { Some(format!("{slug}-")) },
            name: key,
            namespace: agent.namespace(),
            labels: Some([(labels::AGENT.to_owned(), slug.clone())].into()),
            ..ObjectMeta::default()
        },
        spec: AgentReleaseSpec { agent: slug, changelog, author: author(&call.caller) },
        status: None,
    }
}

/// The caller, if the name fits into the resource.
pub(crate) fn author(caller: &Caller) -> Option<String> {
    Some(caller.name.clone()).filter(|name| (1..=AUTHOR_LEN_MAX).contains(&name.len()))
}

/// The agent of the path, which may be deleted: its releases remain.
struct Named {
    slug: String,
    query: slipway_http::Query,
}

async fn named(mut call: Call) -> Result<(Call, Named), Error> {
    let asked = call.path.part("id").to_owned();
    let slug = agents::name(&call, &asked).await?.ok_or_else(|| Error::not_found(format!("there is no agent {asked}")))?;
    let query = std::mem::take(&mut call.query);
    Ok((call, Named { slug, query }))
}

/// The version in the path.
fn version<B>(call: &Call<B>) -> Result<u64, Error> {
    let named = call.path.part("version");
    let version = named.parse::<u64>().ok().filter(|version| *version > 0);
    version.ok_or_else(|| Error::not_found(format!("there is no release {named}; releases are numbered from 1")))
}

/// The state role has verified the artifact before.
fn artifact(text: &str) -> Result<Artifact, Error> {
    Artifact::from_yaml(text).map_err(|fault| Error::new(StatusCode::BAD_GATEWAY, format!("the release cannot be read: {fault}")))
}

/// The page of releases that the query asks for, and the next cursor.
async fn entries(call: &Call, named: &mut Named) -> Result<(Vec<Entry>, Option<String>), Error> {
    let query = &mut named.query;
    let limit = query.number("limit", DEFAULT_LIMIT, 1..=MOST)?;
    let cursor = query.text("cursor").map(|text| text.parse::<u64>()).transpose();
    let mut before = cursor.map_err(|_| Error::bad_request("`cursor` must be the `next_cursor` of an earlier page"))?;
    let words: Vec<String> = query.text("search").unwrap_or_default().split_whitespace().map(str::to_lowercase).collect();
    std::mem::take(query).end()?;
    let fits = |entry: &Entry| {
        let text =
            format!("v{} {} {} {}", entry.version, entry.status.as_str(), entry.author, entry.changelog_with_reason()).to_lowercase();
        words.iter().all(|word| text.contains(word))
    };
    let begins = before.is_none();
    let mut found: Vec<Entry> = Vec::new();
    loop {
        let step = if words.is_empty() { limit - found.len() } else { MOST };
        let page = call.context.state.releases(&call.namespace(), &named.slug, step, before).await?;
        if begins && before.is_none() && page.data.is_empty() {
            // An agent without releases is no error.
            agents::find(call).await?;
        }
        for entry in page.data.into_iter().filter(|entry| fits(entry)) {
            if found.len() == limit {
                return Ok((found.clone(), found.last().map(|last| last.version.to_string())));
            }
            found.push(entry);
        }
        match page.next_before {
            Some(next) if found.len() < limit => before = Some(next),
            next => return Ok((found, next.map(|next| next.to_string()))),
        }
    }
}

/// The changelog of a release; for a rejected one also the reason.
trait ChangelogWithReason {
    fn changelog_with_reason(&self) -> String;
}

impl ChangelogWithReason for Entry {
    fn changelog_with_reason(&self) -> String {
        match (&self.status, &self.reason) {
            (ReleasePhase::Rejected, Some(reason)) => format!("{} [REJECTED: {reason}]", self.changelog).trim_start().to_owned(),
            _ => self.changelog.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejected_release_says_why_in_its_changelog() {
        let entry = |status: &str, changelog: &str, reason: Option<&str>| -> String {
            let entry: Entry = serde_json::from_value(serde_json::json!({
                "version": 2, "previous": 1, "status": status, "reason": reason, "author": "ada", "timestamp": "2026-11-21T12:00:00Z",
                "changelog": changelog, "checksum": "", "commit": "",
            }))
            .unwrap();
            entry.changelog_with_reason()
        };
        assert_eq!(entry("rejected", "kinder", Some("40 < 80")), "kinder [REJECTED: 40 < 80]");
        assert_eq!(entry("rejected", "", Some("40 < 80")), "[REJECTED: 40 < 80]");
        assert_eq!(entry("archived", "kinder", Some("superseded")), "kinder");
    }
}
