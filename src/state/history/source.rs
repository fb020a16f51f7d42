//! Reading objects of a repository, with words for what cannot be read.

use gix::ObjectId;
use gix::objs::Kind;

use super::Fault;
use super::branch::BRANCH;
use super::message::{self, About};

/// Larger objects are not looked at; nothing that we write comes near.
const LARGEST: u64 = 64 * 1024 * 1024;

/// A view of one repository's objects, for one thread.
pub(super) struct Source(pub gix::Repository);

impl Source {
    /// The commit that the branch stands on.
    pub(super) fn head(&self) -> Result<Option<ObjectId>, Fault> {
        let found = self
            .0
            .try_find_reference(BRANCH)
            .map_err(|error| Fault::damaged(format!("{BRANCH} cannot be read: {error}; restore it from a mirror or a backup")))?;
        Ok(found.and_then(|reference| reference.try_id().map(gix::Id::detach)))
    }

    pub(super) fn read(&self, id: ObjectId, kind: Kind) -> Result<Vec<u8>, Fault> {
        if id == ObjectId::empty_tree(gix::hash::Kind::Sha1) {
            return Ok(Vec::new());
        }
        let size = self.0.find_header(id).map_err(|error| Fault::object(id, &error))?.size();
        if size > LARGEST {
            return Err(Fault::object(id, &format!("it has {size} bytes, more than anything of ours")));
        }
        let object = self.0.find_object(id).map_err(|error| Fault::object(id, &error))?;
        if object.kind != kind {
            return Err(Fault::object(id, &format!("it is a {}, where a {kind} must be", object.kind)));
        }
        Ok(object.detach().data)
    }

    pub(super) fn text(&self, id: ObjectId, name: &str) -> Result<String, Fault> {
        String::from_utf8(self.read(id, Kind::Blob)?).map_err(|_| Fault::damaged(format!("{name} ({id}) is no text")))
    }

    /// The folder that a commit holds.
    pub(super) fn root(&self, commit: ObjectId) -> Result<ObjectId, Fault> {
        let bytes = self.read(commit, Kind::Commit)?;
        let mut parts = gix::objs::CommitRefIter::from_bytes(&bytes, gix::hash::Kind::Sha1);
        parts.tree_id().map_err(|error| Fault::object(commit, &error))
    }

    /// A commit's parents, and what it is about if it is one of ours.
    pub(super) fn commit(&self, commit: ObjectId) -> Result<(Vec<ObjectId>, Option<About>), Fault> {
        let bytes = self.read(commit, Kind::Commit)?;
        let parts = gix::objs::CommitRefIter::from_bytes(&bytes, gix::hash::Kind::Sha1);
        Ok((parts.parent_ids().collect(), message::about(&bytes)))
    }

    /// What stands at a path, whole names only.
    pub(super) fn at(&self, root: ObjectId, path: &[&str]) -> Result<Option<ObjectId>, Fault> {
        let mut id = root;
        for (depth, name) in path.iter().enumerate() {
            match super::tree::find(&self.read(id, Kind::Tree)?, name)? {
                Some((is_folder, found)) if is_folder || depth + 1 == path.len() => id = found,
                _ => return Ok(None),
            }
        }
        Ok(Some(id))
    }
}
