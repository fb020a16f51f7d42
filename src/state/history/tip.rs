//! The newest folders of a repository, in memory as far as they were needed, and edited there: what one release
//! changes is written without reading anything that the release before it wrote.

use std::collections::{BTreeMap, BTreeSet};

use gix::ObjectId;
use gix::objs::Kind;

use super::Fault;
use super::pack::{Batch, Closed, is_open};
use super::source::Source;
use super::tree::{self, Tree};

/// So many folders in a folder are kept; when there are more, they are read again.
const FOLDERS: usize = 256;

/// A folder with those of its folders that were opened.
#[derive(Default)]
pub(super) struct Folder {
    tree: Tree,
    /// None once anything in it has changed.
    id: Option<ObjectId>,
    folders: BTreeMap<String, Folder>,
    /// Folders in it that may have changed since it was sealed.
    touched: BTreeSet<String>,
    /// What in it has an open id.
    open: BTreeSet<String>,
}

impl Folder {
    pub(super) fn load(source: &Source, id: ObjectId) -> Result<Self, Fault> {
        Ok(Self { tree: Tree::new(source.read(id, Kind::Tree)?)?, id: Some(id), ..Self::default() })
    }

    /// A folder in this one, which is empty if it is not there.
    pub(super) fn folder(&mut self, name: &str, source: &Source) -> Result<&mut Self, Fault> {
        if !self.folders.contains_key(name) {
            let folder = match self.tree.find(name)? {
                Some((true, id)) => Self::load(source, id)?,
                Some((false, _)) => return Err(Fault::damaged(format!("{name} is a file in the repository; it must be a folder"))),
                None => Self::default(),
            };
            self.folders.insert(name.to_owned(), folder);
        }
        if !self.touched.contains(name) {
            self.touched.insert(name.to_owned());
        }
        // Just put there if it was not.
        Ok(self.folders.entry(name.to_owned()).or_default())
    }

    pub(super) fn file(&self, name: &str) -> Result<Option<ObjectId>, Fault> {
        Ok(self.tree.find(name)?.filter(|(is_folder, _)| !is_folder).map(|(_, id)| id))
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = Result<tree::Entry<'_>, Fault>> {
        tree::entries(self.tree.bytes())
    }

    /// Puts a file there. Nothing changes if it is there already.
    pub(super) fn put(&mut self, name: &str, id: ObjectId) -> Result<(), Fault> {
        if self.file(name)? == Some(id) {
            return Ok(());
        }
        self.set(name, false, id)
    }

    fn set(&mut self, name: &str, is_folder: bool, id: ObjectId) -> Result<(), Fault> {
        self.id = None;
        if is_open(&id) {
            self.open.insert(name.to_owned());
        } else {
            self.open.remove(name);
        }
        self.tree.set(name, is_folder, id)
    }

    pub(super) fn remove(&mut self, name: &str) -> Result<(), Fault> {
        self.id = None;
        self.open.remove(name);
        self.tree.remove(name)
    }

    /// Hands over what has changed in this folder and below, and answers what it is called now. `path` is where it stands.
    pub(super) fn seal(&mut self, path: &str, batch: &mut Batch) -> Result<ObjectId, Fault> {
        for name in std::mem::take(&mut self.touched) {
            let Some(folder) = self.folders.get_mut(&name) else { continue };
            let before = folder.id;
            if before.is_none() && folder.is_bare() {
                // Git has no empty folders.
                self.open.remove(&name);
                self.tree.remove(&name)?;
                continue;
            }
            let id = folder.seal(&format!("{path}/{name}"), batch)?;
            if before != Some(id) {
                self.set(&name, true, id)?;
            }
        }
        if let Some(id) = self.id {
            return Ok(id);
        }
        let mut open = Vec::with_capacity(self.open.len());
        for name in &self.open {
            open.extend(self.tree.place_of_id(name)?);
        }
        let id = batch.growing(Kind::Tree, self.tree.bytes().to_vec(), path, &open);
        self.id = Some(id);
        Ok(id)
    }

    /// Whether nothing is in it, nor in what is in it.
    fn is_bare(&self) -> bool {
        self.tree.bytes().is_empty() && self.folders.values().all(|inner| inner.tree.bytes().is_empty())
    }

    /// Puts ids where open ones stand.
    pub(super) fn close(&mut self, closed: &Closed) -> Result<(), Fault> {
        self.id = self.id.map(|id| closed.id(id));
        for name in std::mem::take(&mut self.open) {
            let Some((is_folder, id)) = self.tree.find(&name)? else { continue };
            self.tree.set(&name, is_folder, closed.id(id))?;
            if let Some(folder) = self.folders.get_mut(&name) {
                folder.close(closed)?;
            }
        }
        if self.folders.len() > FOLDERS {
            self.folders.clear();
        }
        Ok(())
    }

    /// How many bytes are held.
    pub(super) fn weight(&self) -> usize {
        self.tree.bytes().len() + self.folders.values().map(Self::weight).sum::<usize>()
    }
}
