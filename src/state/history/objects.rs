//! Reads objects of a repository and names what is wrong with those that cannot be read.

use gix::ObjectId;
use gix::objs::{Kind, Tree, TreeRef, TreeRefIter};

use super::HistoryFault;
use super::branch::BRANCH;
use super::message::{self, About};

/// Larger objects are refused. None that is written here comes near.
const MAX_OBJECT_BYTES: u64 = 64 * 1024 * 1024;

/// The objects of one repository, for one thread.
pub(super) struct ObjectReader(pub gix::Repository);

impl ObjectReader {
    /// The commit of the branch.
    pub(super) fn head(&self) -> Result<Option<ObjectId>, HistoryFault> {
        let found = self
            .0
            .try_find_reference(BRANCH)
            .map_err(|error| HistoryFault::damaged(format!("{BRANCH} cannot be read: {error}; restore it from a mirror or a backup")))?;
        Ok(found.and_then(|reference| reference.try_id().map(gix::Id::detach)))
    }

    pub(super) fn read(&self, id: ObjectId, kind: Kind) -> Result<Vec<u8>, HistoryFault> {
        if id == ObjectId::empty_tree(gix::hash::Kind::Sha1) {
            return Ok(Vec::new());
        }
        let size = self.0.find_header(id).map_err(|error| HistoryFault::object(id, &error))?.size();
        if size > MAX_OBJECT_BYTES {
            return Err(HistoryFault::object(id, &format!("it has {size} bytes, at most {MAX_OBJECT_BYTES} are read")));
        }
        let object = self.0.find_object(id).map_err(|error| HistoryFault::object(id, &error))?;
        if object.kind != kind {
            return Err(HistoryFault::object(id, &format!("it is a {}, expected a {kind}", object.kind)));
        }
        Ok(object.detach().data)
    }

    pub(super) fn text(&self, id: ObjectId, name: &str) -> Result<String, HistoryFault> {
        String::from_utf8(self.read(id, Kind::Blob)?).map_err(|_| HistoryFault::damaged(format!("{name} ({id}) is no text")))
    }

    pub(super) fn tree(&self, id: ObjectId) -> Result<Tree, HistoryFault> {
        let bytes = self.read(id, Kind::Tree)?;
        let tree: Tree = TreeRef::from_bytes(&bytes, gix::hash::Kind::Sha1).map_err(|error| HistoryFault::object(id, &error))?.into();
        if !tree.entries.is_sorted_by(|one, next| one < next) {
            return Err(HistoryFault::object(id, &"its entries are not sorted"));
        }
        Ok(tree)
    }

    /// The root tree of a commit.
    pub(super) fn root(&self, commit: ObjectId) -> Result<ObjectId, HistoryFault> {
        let bytes = self.read(commit, Kind::Commit)?;
        let mut parts = gix::objs::CommitRefIter::from_bytes(&bytes, gix::hash::Kind::Sha1);
        parts.tree_id().map_err(|error| HistoryFault::object(commit, &error))
    }

    /// The parents of a commit, and what it records if this program made it.
    pub(super) fn commit(&self, commit: ObjectId) -> Result<(Vec<ObjectId>, Option<About>), HistoryFault> {
        let bytes = self.read(commit, Kind::Commit)?;
        let parts = gix::objs::CommitRefIter::from_bytes(&bytes, gix::hash::Kind::Sha1);
        Ok((parts.parent_ids().collect(), message::about(&bytes)))
    }

    /// The object at a path.
    pub(super) fn at(&self, root: ObjectId, path: &[&str]) -> Result<Option<ObjectId>, HistoryFault> {
        let mut id = root;
        for (depth, name) in path.iter().enumerate() {
            let bytes = self.read(id, Kind::Tree)?;
            let mut entries = TreeRefIter::from_bytes(&bytes, gix::hash::Kind::Sha1);
            let found = entries.find(|entry| entry.as_ref().ok().is_none_or(|entry| entry.filename == name.as_bytes())).transpose();
            match found.map_err(|error| HistoryFault::object(id, &error))? {
                Some(entry) if entry.mode.is_tree() || depth + 1 == path.len() => id = entry.oid.to_owned(),
                _ => return Ok(None),
            }
        }
        Ok(Some(id))
    }
}
