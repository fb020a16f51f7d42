//! The newest folders of a repository, in memory as far as they were needed, and edited there: what one release
//! changes is written without reading anything that the release before it wrote.

use std::collections::BTreeMap;

use gix::ObjectId;
use gix::objs::Kind;

use super::pack::Batch;
use super::source::Source;
use super::{Fault, tree};

/// A folder with those of its folders and texts that were opened.
#[derive(Default)]
pub(super) struct Folder {
    bytes: Vec<u8>,
    /// None once anything in it has changed.
    id: Option<ObjectId>,
    folders: BTreeMap<String, Folder>,
    texts: BTreeMap<String, String>,
}

impl Folder {
    pub(super) fn load(source: &Source, id: ObjectId) -> Result<Self, Fault> {
        Ok(Self { bytes: source.read(id, Kind::Tree)?, id: Some(id), ..Self::default() })
    }

    /// A folder in this one, which is empty if it is not there.
    pub(super) fn folder(&mut self, name: &str, source: &Source) -> Result<&mut Self, Fault> {
        if !self.folders.contains_key(name) {
            let folder = match tree::find(&self.bytes, name)? {
                Some((true, id)) => Self::load(source, id)?,
                Some((false, _)) => return Err(Fault::damaged(format!("{name} is a file in the repository; it must be a folder"))),
                None => Self::default(),
            };
            self.folders.insert(name.to_owned(), folder);
        }
        // Just put there if it was not.
        Ok(self.folders.entry(name.to_owned()).or_default())
    }

    pub(super) fn file(&self, name: &str) -> Result<Option<ObjectId>, Fault> {
        Ok(tree::find(&self.bytes, name)?.filter(|(is_folder, _)| !is_folder).map(|(_, id)| id))
    }

    /// A text that grows, kept for the next change. Empty if it is not there.
    pub(super) fn text(&mut self, name: &str, source: &Source) -> Result<&mut String, Fault> {
        if !self.texts.contains_key(name) {
            let text = match self.file(name)? {
                Some(id) => source.text(id, name)?,
                None => String::new(),
            };
            self.texts.insert(name.to_owned(), text);
        }
        Ok(self.texts.entry(name.to_owned()).or_default())
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = Result<tree::Entry<'_>, Fault>> {
        tree::entries(&self.bytes)
    }

    /// Puts a file there. Nothing changes if it is there already.
    pub(super) fn put(&mut self, name: &str, id: ObjectId) -> Result<(), Fault> {
        if self.file(name)? != Some(id) {
            self.id = None;
            tree::set(&mut self.bytes, name, false, id)?;
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &str) -> Result<(), Fault> {
        self.id = None;
        self.texts.remove(name);
        tree::remove(&mut self.bytes, name)
    }

    /// Writes what has changed in this folder and below, and answers what it is called now. `path` is where it stands.
    pub(super) fn seal(&mut self, path: &str, batch: &mut Batch) -> Result<ObjectId, Fault> {
        for (name, folder) in &mut self.folders {
            let before = folder.id;
            if before.is_none() && folder.bytes.is_empty() && folder.folders.values().all(|inner| inner.bytes.is_empty()) {
                // Git has no empty folders.
                tree::remove(&mut self.bytes, name)?;
                continue;
            }
            let id = folder.seal(&format!("{path}/{name}"), batch)?;
            if before != Some(id) {
                self.id = None;
                tree::set(&mut self.bytes, name, true, id)?;
            }
        }
        if let Some(id) = self.id {
            return Ok(id);
        }
        let id = batch.add(Kind::Tree, self.bytes.clone(), Some(path))?;
        self.id = Some(id);
        Ok(id)
    }

    /// How many bytes are held.
    pub(super) fn weight(&self) -> usize {
        self.bytes.len() + self.texts.values().map(String::len).sum::<usize>() + self.folders.values().map(Self::weight).sum::<usize>()
    }
}
