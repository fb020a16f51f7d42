//! Skills from elsewhere: out of a Git repository, or out of a zip archive that was sent along.

use schemars::{Schema, SchemaGenerator};
use slipway_api::{Skill, SkillSpec};
use slipway_http::{Error, Reply, Request, StatusCode};

use super::source::{self, Source, Wanted};
use super::upload::{self, Media};
use super::{View, apart, api, make, put, slug_of};
use crate::answer::{Answer, Data};
use crate::call::{Body, Call};
use crate::fault;
use crate::right::Right;
use crate::route::Parameter;

const REPLACE: Right = Right::on("patch", "skills");

/// The parameters of an import.
pub(crate) const IMPORT: &[Parameter] = &[
    Parameter { name: "replace", about: "true replaces a skill of the same name.", kind: "boolean" },
    Parameter { name: "name", about: "Of an archive: the skill's name here. Default: the one it has there.", kind: "string" },
    Parameter { name: "path", about: "Of an archive: the skill's folder, if there are several.", kind: "string" },
];

/// A body of one of the forms that an import takes.
pub(crate) struct Import(Request);

impl Body for Import {
    fn form(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Some(("application/json", generator.subschema_for::<Wanted>()))
    }

    async fn read(request: Request) -> Result<Self, Error> {
        Ok(Self(request))
    }
}

/// The imported skill: 201, or 200 if it has taken another's place.
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
    let (mut spec, name) = match upload::media(request.headers())? {
        Media::Json if name.is_some() || path.is_some() => {
            return Err(Error::bad_request("`name` and `path` stand in the body, beside `source`"));
        }
        Media::Json => from_git(&call, request.json().await?).await?,
        media => (from_archive(&call, request, media, path).await?, name),
    };
    if let Some(name) = name {
        spec.name = name;
    }
    if let Some(fault) = spec.fault() {
        return Err(Error::bad_request(super::unspecced(&fault)));
    }
    keep(&call, spec, replace).await
}

async fn from_git(call: &Call, wanted: Wanted) -> Result<(SkillSpec, Option<String>), Error> {
    let source = Source::of(&wanted)?;
    Ok((apart::fetch(&call.context.settings.importer, &call.namespace(), &source).await?, wanted.name))
}

/// The archive is here before there is room to unpack it: who sends slowly takes no turn from others.
async fn from_archive(call: &Call, request: Request, media: Media, path: Option<String>) -> Result<SkillSpec, Error> {
    let (asked, team) = (source::folder(&path.unwrap_or_default())?, call.namespace());
    let (archive, _place) = upload::receive(request, media, &team).await?;
    apart::unpack(&call.context.settings.importer, &team, archive, &asked).await
}

/// Makes the skill, or replaces the one of its name.
async fn keep(call: &Call, spec: SkillSpec, replace: bool) -> Result<Imported, Error> {
    let slug = slug_of("name", &spec.name)?;
    let what = format!("skill {slug}");
    if replace {
        let present: Option<Skill> = api(call).get_opt(&slug).await.map_err(|error| fault::of_cluster(error, &what))?;
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

/// Whoever is told what to send is told all there is.
pub(super) const TAKEN: &str = "the body must be application/json with a `source`, application/zip, or multipart/form-data with a `file`";
