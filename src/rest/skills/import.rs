//! `POST /skills/import`: makes or replaces a skill from a Git repository or an uploaded zip archive.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use slipway_api::{Skill, SkillSpec};
use slipway_http::{Error, Reply, Request, StatusCode};
use slipway_import::{MediaType, SkillSource};

use super::{View, api, make, put, slug_of};
use crate::answer::{Answer, Data};
use crate::call::{Body, Call};
use crate::cluster_error;
use crate::permission::Right;
use crate::route::Parameter;

const REPLACE: Right = Right::on("patch", "skills");

/// The parameters of an import.
pub(crate) const IMPORT: &[Parameter] = &[
    Parameter { name: "replace", about: "true replaces a skill of the same name.", kind: "boolean" },
    Parameter { name: "name", about: "Of an archive: the skill's name here. Default: the one it has there.", kind: "string" },
    Parameter { name: "path", about: "Of an archive: the skill's folder, if there are several.", kind: "string" },
];

/// What to import.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SkillImport {
    /// The URL of a Git repository, for example `https://github.com/owner/repository//path?ref=v1`: after two slashes
    /// the skill's folder, after `?ref=` a branch, a tag or a commit.
    source: String,
    /// The skill's folder within the repository, unless the URL names it.
    path: Option<String>,
    /// A branch, a tag or a commit, unless the URL names it. Default: the repository's default branch.
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// The skill's name here. Default: the one it has there.
    name: Option<String>,
}

/// The request of an import; its media type decides how the body is read.
pub(crate) struct Import(Request);

impl Body for Import {
    fn form(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Some(("application/json", generator.subschema_for::<SkillImport>()))
    }

    async fn read(request: Request) -> Result<Self, Error> {
        Ok(Self(request))
    }
}

/// The imported skill: 201, or 200 if it replaces another.
pub(crate) struct Imported {
    skill: Data<View>,
    replaced: bool,
}

impl Answer for Imported {
    const STATUS: StatusCode = StatusCode::CREATED;

    fn form(generator: &mut SchemaGenerator) -> Schema {
        Data::<View>::form(generator)
    }

    fn reply(self) -> Result<Reply, Error> {
        let reply = self.skill.reply()?;
        Ok(if self.replaced { reply } else { reply.with_status(Self::STATUS) })
    }
}

pub(crate) async fn import(call: Call<Import>) -> Result<Imported, Error> {
    let (mut call, Import(request)) = call.split();
    let replace = match call.query.text("replace").as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(Error::bad_request("`replace` must be true or false")),
    };
    let (name, path) = (call.query.text("name"), call.query.text("path"));
    std::mem::take(&mut call.query).end()?;
    let (mut spec, name) = match MediaType::of(request.headers())? {
        MediaType::Json if name.is_some() || path.is_some() => {
            return Err(Error::bad_request("`name` and `path` stand in the body, beside `source`"));
        }
        MediaType::Json => from_git(&call, request.json().await?).await?,
        media_type => {
            let importer = &call.context.importer;
            (importer.unpack(&call.namespace(), request, media_type, &path.unwrap_or_default()).await?, name)
        }
    };
    if let Some(name) = name {
        spec.name = name;
    }
    if let Some(fault) = spec.fault() {
        return Err(Error::bad_request(super::without_spec_prefix(&fault)));
    }
    store(&call, spec, replace).await
}

async fn from_git(call: &Call, wanted: SkillImport) -> Result<(SkillSpec, Option<String>), Error> {
    let source = SkillSource::parse(&wanted.source, wanted.path.as_deref(), wanted.reference.as_deref())?;
    Ok((call.context.importer.fetch(&call.namespace(), &source).await?, wanted.name))
}

/// Creates the skill, or replaces the one of its name.
async fn store(call: &Call, spec: SkillSpec, replace: bool) -> Result<Imported, Error> {
    let slug = slug_of("name", &spec.name)?;
    let what = format!("skill {slug}");
    if replace {
        let present: Option<Skill> = api(call).get_opt(&slug).await.map_err(|error| cluster_error::from_kube(error, &what))?;
        if present.is_some() {
            let namespace = call.namespace();
            if !call.context.access.allows(&call.caller, REPLACE, &namespace, Some(&slug)).await? {
                return Err(Error::new(StatusCode::FORBIDDEN, format!("{} may not {REPLACE} in this team", call.caller.name)));
            }
            return Ok(Imported { skill: put(call, &slug, &what, &spec).await?, replaced: true });
        }
    }
    match make(call, &slug, spec).await {
        Ok(skill) => Ok(Imported { skill, replaced: false }),
        Err(error) if error.message().starts_with("there is already") => {
            let message = format!("{}; ?replace=true replaces it, and another `name` leaves it be", error.message());
            Err(Error::new(StatusCode::CONFLICT, message))
        }
        Err(error) => Err(error),
    }
}
