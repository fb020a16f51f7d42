//! Skills from elsewhere: out of a Git repository, or out of a zip archive that was sent along.

use std::time::Duration;

use schemars::{Schema, SchemaGenerator};
use slipway_api::{Skill, SkillSpec};
use slipway_http::{Error, HeaderValue, Reply, Request, StatusCode, header};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::archive::Archive;
use super::source::{self, Source, Wanted};
use super::upload::{self, Media};
use super::{View, apart, api, folder, make, put, slug_of};
use crate::answer::{Answer, Data};
use crate::call::{Body, Call};
use crate::fault;
use crate::right::Right;
use crate::route::Parameter;

/// How many archives this process works on at once, and how long a further import waits.
const AT_ONCE: usize = 4;
const PATIENCE: Duration = Duration::from_secs(10);
static ROOM: Semaphore = Semaphore::const_new(AT_ONCE);

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
        media => (from_archive(request, media, path).await?, name),
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
    Ok((apart::skill(&call.context.settings.importer, &source).await?, wanted.name))
}

async fn from_archive(request: Request, media: Media, path: Option<String>) -> Result<SkillSpec, Error> {
    let asked = source::folder(&path.unwrap_or_default())?;
    let room = room(&ROOM, AT_ONCE).await?;
    let archive = upload::receive(request, media).await?;
    let work = spawn_blocking(move || {
        let _room = room;
        unpack(&archive, &asked)
    });
    work.await.map_err(Error::internal)?
}

fn unpack(archive: &Archive, asked: &str) -> Result<SkillSpec, Error> {
    let entries = archive.entries()?;
    let mut files = Vec::new();
    for entry in folder::choose(&entries, asked)? {
        let bytes = archive.read(&entry)?;
        files.push((entry.path, bytes));
    }
    folder::skill(files)
}

pub(super) async fn room(of: &'static Semaphore, places: usize) -> Result<SemaphorePermit<'static>, Error> {
    match timeout(PATIENCE, of.acquire()).await {
        Ok(permit) => permit.map_err(Error::internal),
        Err(_) => Err(Error::new(StatusCode::TOO_MANY_REQUESTS, format!("{places} imports are under way; try again in a moment"))
            .with_header(header::RETRY_AFTER, HeaderValue::from_static("15"))),
    }
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
