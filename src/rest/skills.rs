//! Skills: list, get, create, replace, delete and import.

mod import;

use kube::ResourceExt;
use kube::api::Api;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use slipway_api::skill::SkillPhase;
use slipway_api::{Skill, SkillSpec, condition, ids, names};
use slipway_http::{Error, StatusCode};

use crate::agents::Deleted;
use crate::answer::{Created, Data};
use crate::call::{Call, Json};
use crate::fields::{self, SKILL};
use crate::list_cache::{self, ListEntry};
use crate::page::{Page, page};
use crate::{cluster_error, gitops, write};

pub(crate) use import::{IMPORT, import};

/// Any skill fields.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Fields(Map<String, Value>);

impl JsonSchema for Fields {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SkillFields".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        Schema::try_from(fields::form(&SKILL)).unwrap_or_default()
    }
}

/// A skill, with all its folder holds.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Skill")]
pub(crate) struct View {
    #[serde(flatten)]
    pub summary: Summary,
    /// What the model is to do, in Markdown.
    pub instructions: String,
    /// Other text files of the skill's folder, by path.
    pub files: std::collections::BTreeMap<String, String>,
}

/// A skill as a list shows it: without instructions and files, which are what is large in it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SkillSummary")]
pub(crate) struct Summary {
    pub id: String,
    /// By which the model asks for it.
    pub name: String,
    /// The resource's name, which agents and paths may use instead of the id.
    pub slug: String,
    pub description: String,
    pub category: String,
    pub version: Option<String>,
    pub author: Option<String>,
    pub source: Option<String>,
    pub license: Option<String>,
    pub compatibility: Option<String>,
    pub tools: Vec<String>,
    pub status: Status,
    /// Why it cannot be used, if that is so.
    pub message: Option<String>,
    /// SHA-256 over all that its folder holds.
    pub digest: Option<String>,
    pub resource_version: Option<String>,
    pub created_at: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "SkillStatus")]
pub(crate) enum Status {
    Pending,
    Available,
    Error,
}

impl Summary {
    fn of(skill: &Skill) -> Self {
        let (spec, slug) = (&skill.spec, skill.name_any());
        let status = skill.status.as_ref();
        let current = status.filter(|status| status.observed_generation == skill.metadata.generation);
        let ready = current.into_iter().flat_map(|status| &status.conditions).find(|found| found.type_ == condition::READY);
        Self {
            id: ids::skill(&slug),
            name: spec.name.clone(),
            description: spec.description.clone(),
            category: spec.category.clone(),
            version: spec.version.clone(),
            author: spec.author.clone(),
            source: spec.source.clone(),
            license: spec.license.clone(),
            compatibility: spec.compatibility.clone(),
            tools: spec.tools.clone(),
            status: match current.and_then(|status| status.phase) {
                Some(SkillPhase::Available) => Status::Available,
                Some(SkillPhase::Error) => Status::Error,
                None => Status::Pending,
            },
            message: ready.filter(|ready| ready.status != "True").map(|ready| ready.message.clone()),
            digest: current.and_then(|status| status.digest.clone()),
            resource_version: skill.resource_version(),
            created_at: crate::agents::time(skill.creation_timestamp().map(|time| time.0)),
            slug,
        }
    }
}

impl View {
    fn of(skill: &Skill) -> Self {
        Self { summary: Summary::of(skill), instructions: skill.spec.instructions.clone(), files: skill.spec.files.clone() }
    }
}

pub(crate) fn item(skill: &Skill) -> Option<ListEntry> {
    let mut summary = Summary::of(skill);
    summary.message = list_cache::truncate(summary.message);
    Some(ListEntry {
        created: skill.creation_timestamp().map_or(0, |time| time.0.as_second()),
        search: format!("{} {} {} {}", summary.slug, summary.name, summary.category, summary.description).to_lowercase().into(),
        json: serde_json::to_string(&summary).ok()?.into(),
        id: summary.id,
        ..ListEntry::default()
    })
}

pub(crate) async fn list(call: Call) -> Result<Page<Summary>, Error> {
    let (context, namespace) = (call.context.clone(), call.namespace());
    page(call, &context.caches.skills, Some(&namespace)).await
}

pub(crate) async fn get(call: Call) -> Result<Data<View>, Error> {
    let (name, what) = named(&call)?;
    Ok(answer(&api(&call).get(&name).await.map_err(|error| cluster_error::from_kube(error, &what))?))
}

pub(crate) async fn create(call: Call<Json<Fields>>) -> Result<Created<View>, Error> {
    let (call, Json(Fields(mut given))) = call.split();
    let slug = given.remove("slug");
    let spec = spec(given)?;
    let slug = match slug {
        None => slug_of("name", &spec.name)?,
        Some(Value::String(slug)) => slug_of("slug", &slug)?,
        Some(_) => return Err(Error::bad_request("slug: must be a string")),
    };
    make(&call, &slug, spec).await.map(Created)
}

/// Replaces a skill. Missing fields are reset.
pub(crate) async fn replace(call: Call<Json<Fields>>) -> Result<Data<View>, Error> {
    let (call, Json(Fields(given))) = call.split();
    let (name, what) = named(&call)?;
    put(&call, &name, &what, &spec(given)?).await
}

pub(crate) async fn delete(call: Call) -> Result<Data<Deleted>, Error> {
    let (name, what) = named(&call)?;
    let found = api(&call).get(&name).await.map_err(|error| cluster_error::from_kube(error, &what))?;
    gitops::refuse(&found.metadata, &what)?;
    let version = write::delete(&call, &api(&call), &found, &what).await?;
    Ok(Data::since(Deleted { id: ids::skill(&name), deleted: true }, version))
}

async fn make(call: &Call, slug: &str, spec: SkillSpec) -> Result<Data<View>, Error> {
    let mut skill = Skill::new(slug, spec);
    skill.metadata.namespace = Some(call.namespace());
    Ok(answer(&write::create(call, &api(call), skill, &format!("skill {slug}")).await?))
}

async fn put(call: &Call, name: &str, what: &str, spec: &SkillSpec) -> Result<Data<View>, Error> {
    let wanted = serde_json::to_value(spec).map_err(Error::internal)?;
    let api = api(call);
    let changed = write::change(call, &api, name, what, |skill: &Skill| {
        gitops::refuse(&skill.metadata, what)?;
        let mut patch = wanted.clone();
        let present = serde_json::to_value(&skill.spec).map_err(Error::internal)?;
        write::clear(&mut patch, &present);
        Ok(json!({"spec": patch}))
    });
    Ok(answer(&changed.await?))
}

fn api(call: &Call) -> Api<Skill> {
    Api::namespaced(call.client(), &call.namespace())
}

fn spec(given: Map<String, Value>) -> Result<SkillSpec, Error> {
    let spec = fields::without_nulls(fields::to_resource(&SKILL, Value::Object(given))?);
    let spec: SkillSpec = serde_json::from_value(spec).map_err(|error| Error::bad_request(format!("the body does not fit: {error}")))?;
    match spec.fault() {
        None => Ok(spec),
        Some(fault) => Err(Error::bad_request(without_spec_prefix(&fault))),
    }
}

/// Errors of a resource without `spec.`, which REST's callers never see.
fn without_spec_prefix(fault: &str) -> String {
    fault.strip_prefix("spec.").unwrap_or(fault).to_owned()
}

fn slug_of(field: &str, name: &str) -> Result<String, Error> {
    let slug = names::slugify(name).map_err(|error| Error::bad_request(format!("{field}: {error}")))?;
    if slug.len() > 63 {
        return Err(Error::bad_request(format!("{field}: {slug:?} is longer than 63 characters; give a shorter `slug`")));
    }
    Ok(slug)
}

/// The name of the path's skill, and its name in messages.
fn named(call: &Call) -> Result<(String, String), Error> {
    let given = call.path.part("id");
    let what = format!("skill {given}");
    let name = ids::skill_name(given);
    if names::is_name(&name) { Ok((name, what)) } else { Err(Error::new(StatusCode::NOT_FOUND, format!("there is no {what}"))) }
}

fn answer(skill: &Skill) -> Data<View> {
    Data::at(View::of(skill), skill.resource_version())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_null_is_as_one_that_is_left_out() {
        let spec = |fields: Value| spec(fields.as_object().cloned().unwrap()).unwrap();
        let nulls = json!({"name": "greeting", "description": "How to greet.", "instructions": "Say hello.", "files": null, "tools": null, "category": null, "author": null});
        assert_eq!(spec(nulls), spec(json!({"name": "greeting", "description": "How to greet.", "instructions": "Say hello."})));
    }
}
