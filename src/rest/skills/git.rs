//! Takes a folder out of a Git repository: the last commit of one branch or tag, without history, into a folder that
//! is gone afterwards. gix speaks Git; what goes over the network goes through `wire`, and there by the egress rules.
//! How much memory that takes is for the sender to say, so that it is done in a process that `apart` starts.

mod wire;

use std::num::NonZeroU32;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gix::bstr::ByteSlice;
use gix::progress::Discard;
use gix::remote::Direction;
use gix::remote::fetch::{Shallow, Tags};
use gix_transport::Protocol;
use gix_transport::client::blocking_io::http::connect_http;
use slipway_egress::Egress;
use slipway_http::{Error, StatusCode};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::apart::{Kind as Process, starved};
use super::folder::{self, Entry, Kind};
use super::source::Source;
use wire::{Fault, Wire};

/// The name under which what was asked for is kept in our copy.
const KEPT: &str = "refs/slipway/import";
/// Larger objects are not unpacked. Anything bigger is no skill's, but may lie beside one.
const OBJECT_MAX: &str = "gitoxide.objects.allocLimit=33554432";
/// How many files and folders are looked at in search of skills, how deep, and how long their paths may be. A folder
/// counts each time it is come by: one that stands in many places is sent once.
const ENTRIES_MAX: usize = 20_000;
const DEEPEST: usize = 24;
const PATH_MAX: usize = 4096;

const ALLOWED: &str = "an operator can allow a host that is not public in SLIPWAY_IMPORT_ALLOW, and finds in the log what went wrong";

/// How long the network may take.
pub(super) const TIME: Duration = Duration::from_mins(1);

/// What one import may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub bytes: u64,
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 64 * 1024 * 1024, time: TIME }
    }
}

/// The files of the skill at `source`.
pub(super) async fn files(egress: &Egress, source: Source, limits: Limits) -> Result<Vec<(String, Vec<u8>)>, Error> {
    if source.repository.scheme() == "http" && !egress.is_allowed(&source.repository) {
        return Err(Error::bad_request("source: must begin with https://; http is for places that the operator has allowed"));
    }
    let client = egress.client(&source.repository).map_err(|blocked| Error::bad_request(format!("source: {blocked}")))?.clone();
    let wire = Wire::new(client, Handle::current(), Instant::now() + limits.time, limits.bytes);
    let egress = egress.clone();
    spawn_blocking(move || take(&egress, &source, wire)).await.map_err(Error::internal)?
}

pub(super) fn slow(host: &str) -> Error {
    Error::new(StatusCode::GATEWAY_TIMEOUT, format!("{host} took too long to send the repository"))
}

fn take(egress: &Egress, source: &Source, wire: Wire) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let place = slipway_egress::redacted(&source.repository);
    let outcome = wire.outcome();
    let folder = tempfile::tempdir().map_err(Error::internal)?;
    let fetched = fetch(source, wire, folder.path());
    let (repository, commit) = match fetched {
        Ok(Some(found)) => found,
        Ok(None) => {
            return Err(Error::bad_request(match &source.reference {
                Some(name) => format!("ref: {place} has no branch or tag {name} in this repository"),
                None => "source: the repository is empty".to_owned(),
            }));
        }
        Err(error) => return Err(explain(&error, outcome.fault(), source, egress.is_tellable(&source.repository))),
    };
    let entries = list(&repository, commit, source)?;
    let mut files = Vec::new();
    for entry in folder::choose(&entries, &source.path)? {
        let object = repository.find_object(entry.at).map_err(broken)?;
        files.push((entry.path, object.detach().data));
    }
    Ok(files)
}

type Fetched = Option<(gix::Repository, gix::ObjectId)>;

/// Fetches what was asked for, and nothing of its history. `None` when the repository has no such thing.
fn fetch(source: &Source, wire: Wire, folder: &std::path::Path) -> Result<Fetched, gix::Error> {
    // Nothing of this machine's configuration counts, so that no helper is run and no URL rewritten.
    let options = gix::open::Options::isolated().config_overrides([OBJECT_MAX, "pack.threads=1"]);
    let kind = gix::create::Kind::Bare;
    let repository = gix::ThreadSafeRepository::init_opts(folder, kind, gix::create::Options::default(), options)?.to_thread_local();
    let url = gix::Url::try_from(source.repository.as_str()).map_err(gix::Error::from_error)?;
    let spec = format!("+{}:{KEPT}", source.reference.as_deref().unwrap_or("HEAD"));
    let remote = repository.remote_at_without_url_rewrite(url.clone())?.with_fetch_tags(Tags::None);
    let remote = remote.with_refspecs([spec.as_str()], Direction::Fetch)?;
    let transport = connect_http(wire, url, Protocol::V2, false);
    let connection = remote.to_connection_with_transport(transport).with_credentials(|_| Ok(None));
    let prepared = connection.prepare_fetch(Discard, gix::remote::ref_map::Options::default())?;
    if prepared.ref_map().mappings.is_empty() {
        return Ok(None);
    }
    prepared.with_shallow(Shallow::DepthAtRemote(NonZeroU32::MIN)).receive(Discard, &AtomicBool::new(false))?;
    // A repository without a commit has a branch all the same, which leads nowhere.
    let commit = repository.find_reference(KEPT).ok().and_then(|mut kept| Some(kept.peel_to_id().ok()?.detach()));
    Ok(commit.map(|commit| (repository.clone(), commit)))
}

/// What went wrong on the way, in the caller's words. Of what is not public these are always the same, until it has
/// answered as a Git server does: who may name any address must not find out what is there.
fn explain(error: &gix::Error, fault: Option<Fault>, source: &Source, is_tellable: bool) -> Error {
    let place = &slipway_egress::redacted(&source.repository);
    let gateway = |what: String| Error::new(StatusCode::BAD_GATEWAY, what);
    match fault {
        Some(Fault::TooLarge(most)) => Error::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the repository is larger than {} MiB even without its history; import the skill as a zip archive", most >> 20),
        ),
        Some(Fault::TooMany(most)) => Error::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the repository has more than {most} objects even without its history; import the skill as a zip archive"),
        ),
        None if error.classify().is_resource_exhausted() => starved(Process::Git),
        fault if !is_tellable => {
            let cause = fault.map_or_else(|| error.probable_cause().to_string(), |fault| format!("{fault:?}"));
            gateway(format!("{place} could not be reached, is not public, or is no Git server; {ALLOWED}")).because(cause)
        }
        Some(Fault::Blocked(what)) => Error::bad_request(format!("source: {what}")),
        Some(Fault::Slow) => slow(place),
        // Hosts answer so too for what exists but is not for everybody.
        Some(Fault::Status(401 | 403 | 404)) => {
            Error::bad_request(format!("source: {place} has no repository {} that everybody may read", source.repository.path()))
        }
        Some(Fault::Status(status)) => gateway(format!("{place} answered with status {status}")),
        Some(Fault::Unreachable(what)) => gateway(what),
        None => gateway(format!("{place} does not answer as a Git server does, or has no such commit: {}", error.probable_cause())),
    }
}

fn broken(error: gix::Error) -> Error {
    if error.classify().is_resource_exhausted() {
        return starved(Process::Git).because(error);
    }
    Error::new(StatusCode::BAD_GATEWAY, format!("the repository that came cannot be read: {error}"))
}

/// The files below the asked folder, or of all of it.
fn list(repository: &gix::Repository, commit: gix::ObjectId, source: &Source) -> Result<Vec<Entry<gix::ObjectId>>, Error> {
    let top = repository.find_object(commit).map_err(broken)?.peel_to_tree().map_err(broken)?;
    let (mut entries, mut looked_at) = (Vec::new(), 0);
    let mut folders = vec![(source.path.clone(), top.id)];
    if !source.path.is_empty() {
        let found = top.lookup_entry_by_path(&source.path).map_err(broken)?.filter(|entry| entry.mode().is_tree());
        let Some(found) = found else {
            return Err(Error::bad_request(format!("path: the repository has no folder {}", source.path)));
        };
        folders = vec![(source.path.clone(), found.object_id())];
    }
    while let Some((path, id)) = folders.pop() {
        let tree = repository.find_object(id).map_err(broken)?.try_into_tree().map_err(broken)?;
        for entry in tree.iter() {
            let entry = entry.map_err(broken)?;
            looked_at += 1;
            if looked_at > ENTRIES_MAX {
                let message = format!("there are more than {ENTRIES_MAX} files and folders in it; say by `path` where the skill is");
                return Err(Error::bad_request(message));
            }
            let Ok(name) = entry.filename().to_str() else { continue };
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            if path.len() > PATH_MAX {
                return Err(Error::bad_request(format!("a path in it is longer than {PATH_MAX} bytes; say by `path` where the skill is")));
            }
            let (mode, id) = (entry.mode(), entry.object_id());
            if mode.is_tree() {
                if path.split('/').count() <= DEEPEST {
                    folders.push((path, id));
                }
                continue;
            }
            let (kind, size) = match mode.kind() {
                gix::object::tree::EntryKind::Blob | gix::object::tree::EntryKind::BlobExecutable => {
                    (Kind::File, repository.find_header(id).map_err(broken)?.size())
                }
                gix::object::tree::EntryKind::Link => (Kind::Other("a symbolic link"), 0),
                _ => (Kind::Other("another repository"), 0),
            };
            entries.push(Entry { path, kind, size, at: id });
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests;
