//! Takes a folder out of a Git repository: one commit of a branch or tag, without history, fetched into a temporary folder.
//! gix speaks the protocol; its requests go through `transport`, which keeps to the egress rules. The sender decides how much
//! memory this takes, so it runs in a subprocess with a limit.

mod transport;

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

use super::folder::{self, FileEntry, FileKind};
use super::source::SkillSource;
use super::subprocess::{ImportKind, out_of_memory};
use transport::{HttpTransport, TransportFault};

/// The reference of the fetched commit in the temporary repository.
const FETCHED: &str = "refs/slipway/import";
/// The largest object that is unpacked. No skill has larger files, but they may lie beside one.
const OBJECT_LIMIT: &str = "gitoxide.objects.allocLimit=33554432";
/// Bounds of the search for skills: the number of files and folders, the depth, and the length of paths. A folder counts
/// each time it is visited, because one tree object may stand in many places.
const ENTRIES_MAX: usize = 20_000;
const DEPTH_MAX: usize = 24;
const PATH_BYTES_MAX: usize = 4096;

const ALLOW_HINT: &str = "an operator can allow a host that is not public in SLIPWAY_IMPORT_ALLOW, and finds in the log what went wrong";

/// For all network traffic of one import.
pub(super) const NETWORK_TIMEOUT: Duration = Duration::from_mins(1);

/// Limits of one import.
#[derive(Debug, Clone, Copy)]
pub(super) struct FetchLimits {
    pub bytes: u64,
    pub time: Duration,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self { bytes: 64 * 1024 * 1024, time: NETWORK_TIMEOUT }
    }
}

/// The files of the skill at `source`.
pub(super) async fn files(egress: &Egress, source: SkillSource, limits: FetchLimits) -> Result<Vec<(String, Vec<u8>)>, Error> {
    if source.repository.scheme() == "http" && !egress.is_allowed(&source.repository) {
        return Err(Error::bad_request("source: must begin with https://; http is for places that the operator has allowed"));
    }
    let client = egress.client(&source.repository).map_err(|blocked| Error::bad_request(format!("source: {blocked}")))?.clone();
    let transport = HttpTransport::new(client, Handle::current(), Instant::now() + limits.time, limits.bytes);
    let egress = egress.clone();
    spawn_blocking(move || take(&egress, &source, transport)).await.map_err(Error::internal)?
}

pub(super) fn timed_out(host: &str) -> Error {
    Error::new(StatusCode::GATEWAY_TIMEOUT, format!("{host} took too long to send the repository"))
}

fn take(egress: &Egress, source: &SkillSource, transport: HttpTransport) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let origin = slipway_egress::redacted(&source.repository);
    let first_fault = transport.first_fault();
    let folder = tempfile::tempdir().map_err(Error::internal)?;
    let fetched = fetch(source, transport, folder.path());
    let (repository, commit) = match fetched {
        Ok(Some(found)) => found,
        Ok(None) => {
            return Err(Error::bad_request(match &source.reference {
                Some(name) => format!("ref: {origin} has no branch or tag {name} in this repository"),
                None => "source: the repository is empty".to_owned(),
            }));
        }
        Err(error) => return Err(explain(&error, first_fault.get(), source, egress.may_disclose(&source.repository))),
    };
    let entries = list(&repository, commit, source)?;
    let mut files = Vec::new();
    for entry in folder::choose(&entries, &source.path)? {
        let object = repository.find_object(entry.location).map_err(unreadable)?;
        files.push((entry.path, object.detach().data));
    }
    Ok(files)
}

type Fetched = Option<(gix::Repository, gix::ObjectId)>;

/// Fetches the commit, without history. `None` if the repository has no such branch, tag or commit.
fn fetch(source: &SkillSource, transport: HttpTransport, folder: &std::path::Path) -> Result<Fetched, gix::Error> {
    // The configuration of this machine is ignored, so that no helper runs and no URL is rewritten.
    let options = gix::open::Options::isolated().config_overrides([OBJECT_LIMIT, "pack.threads=1"]);
    let kind = gix::create::Kind::Bare;
    let repository = gix::ThreadSafeRepository::init_opts(folder, kind, gix::create::Options::default(), options)?.to_thread_local();
    let url = gix::Url::try_from(source.repository.as_str()).map_err(gix::Error::from_error)?;
    let spec = format!("+{}:{FETCHED}", source.reference.as_deref().unwrap_or("HEAD"));
    let remote = repository.remote_at_without_url_rewrite(url.clone())?.with_fetch_tags(Tags::None);
    let remote = remote.with_refspecs([spec.as_str()], Direction::Fetch)?;
    let transport = connect_http(transport, url, Protocol::V2, false);
    let connection = remote.to_connection_with_transport(transport).with_credentials(|_| Ok(None));
    let prepared = connection.prepare_fetch(Discard, gix::remote::ref_map::Options::default())?;
    if prepared.ref_map().mappings.is_empty() {
        return Ok(None);
    }
    prepared.with_shallow(Shallow::DepthAtRemote(NonZeroU32::MIN)).receive(Discard, &AtomicBool::new(false))?;
    // A repository without commits has a branch that points to nothing.
    let commit = repository.find_reference(FETCHED).ok().and_then(|mut kept| Some(kept.peel_to_id().ok()?.detach()));
    Ok(commit.map(|commit| (repository.clone(), commit)))
}

/// Describes a failed fetch to the caller. For places that are not public the message is always the same, until one has
/// answered as a Git server does: callers must not scan the cluster by the errors of imports.
fn explain(error: &gix::Error, fault: Option<TransportFault>, source: &SkillSource, may_disclose: bool) -> Error {
    let origin = &slipway_egress::redacted(&source.repository);
    let gateway = |what: String| Error::new(StatusCode::BAD_GATEWAY, what);
    match fault {
        Some(TransportFault::TooLarge(most)) => Error::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the repository is larger than {} MiB even without its history; import the skill as a zip archive", most >> 20),
        ),
        Some(TransportFault::TooMany(most)) => Error::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the repository has more than {most} objects even without its history; import the skill as a zip archive"),
        ),
        None if error.classify().is_resource_exhausted() => out_of_memory(ImportKind::Git),
        fault if !may_disclose => {
            let cause = fault.map_or_else(|| error.probable_cause().to_string(), |fault| format!("{fault:?}"));
            gateway(format!("{origin} could not be reached, is not public, or is no Git server; {ALLOW_HINT}")).because(cause)
        }
        Some(TransportFault::Blocked(what)) => Error::bad_request(format!("source: {what}")),
        Some(TransportFault::Slow) => timed_out(origin),
        // Git hosts answer 404 for private repositories, too.
        Some(TransportFault::Status(401 | 403 | 404)) => {
            Error::bad_request(format!("source: {origin} has no repository {} that everybody may read", source.repository.path()))
        }
        Some(TransportFault::Status(status)) => gateway(format!("{origin} answered with status {status}")),
        Some(TransportFault::Unreachable(what)) => gateway(what),
        None => gateway(format!("{origin} does not answer as a Git server does, or has no such commit: {}", error.probable_cause())),
    }
}

fn unreadable(error: gix::Error) -> Error {
    if error.classify().is_resource_exhausted() {
        return out_of_memory(ImportKind::Git).because(error);
    }
    Error::new(StatusCode::BAD_GATEWAY, format!("the repository that came cannot be read: {error}"))
}

/// The files below the folder of `source`, or of the whole repository.
fn list(repository: &gix::Repository, commit: gix::ObjectId, source: &SkillSource) -> Result<Vec<FileEntry<gix::ObjectId>>, Error> {
    let top = repository.find_object(commit).map_err(unreadable)?.peel_to_tree().map_err(unreadable)?;
    let (mut entries, mut visited) = (Vec::new(), 0);
    let mut folders = vec![(source.path.clone(), top.id)];
    if !source.path.is_empty() {
        let found = top.lookup_entry_by_path(&source.path).map_err(unreadable)?.filter(|entry| entry.mode().is_tree());
        let Some(found) = found else {
            return Err(Error::bad_request(format!("path: the repository has no folder {}", source.path)));
        };
        folders = vec![(source.path.clone(), found.object_id())];
    }
    while let Some((path, id)) = folders.pop() {
        let tree = repository.find_object(id).map_err(unreadable)?.try_into_tree().map_err(unreadable)?;
        for entry in tree.iter() {
            let entry = entry.map_err(unreadable)?;
            visited += 1;
            if visited > ENTRIES_MAX {
                let message = format!("there are more than {ENTRIES_MAX} files and folders in it; say by `path` where the skill is");
                return Err(Error::bad_request(message));
            }
            let Ok(name) = entry.filename().to_str() else { continue };
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            if path.len() > PATH_BYTES_MAX {
                return Err(Error::bad_request(format!(
                    "a path in it is longer than {PATH_BYTES_MAX} bytes; say by `path` where the skill is"
                )));
            }
            let (mode, id) = (entry.mode(), entry.object_id());
            if mode.is_tree() {
                if path.split('/').count() <= DEPTH_MAX {
                    folders.push((path, id));
                }
                continue;
            }
            let (kind, size) = match mode.kind() {
                gix::object::tree::EntryKind::Blob | gix::object::tree::EntryKind::BlobExecutable => {
                    (FileKind::File, repository.find_header(id).map_err(unreadable)?.size())
                }
                gix::object::tree::EntryKind::Link => (FileKind::Other("a symbolic link"), 0),
                _ => (FileKind::Other("another repository"), 0),
            };
            entries.push(FileEntry { path, kind, size, location: id });
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests;
