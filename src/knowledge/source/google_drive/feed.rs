//! Drive's list of changes. It tells of everything that the service account sees, and of a file's present parents alone: whether
//! a file belongs to the folder is found by walking up. A folder that moves into the folder, out of it or to the trash says
//! nothing of the files in it, so that it takes a traversal.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

use super::file::{DriveFile, FIELDS, plain_id};
use super::{GoogleDrive, Subject, file_query};
use crate::source::{ChangeCursor, Changes, Incremental, Pending, SourceError, SourceErrorKind};

/// How deep a folder may lie.
const MAX_DEPTH: usize = 64;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Start {
    start_page_token: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChangeList {
    changes: Vec<Change>,
    next_page_token: Option<String>,
    new_start_page_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Change {
    #[serde(default)]
    removed: bool,
    /// None where the change is one of a shared drive.
    file_id: Option<String>,
    file: Option<DriveFile>,
}

impl Incremental for GoogleDrive {
    fn now(&self) -> Pending<'_, ChangeCursor> {
        Box::pin(async move {
            let start: Start = self.ask("changes/startPageToken", &[("supportsAllDrives", "true")], Subject::Feed).await?;
            Ok(ChangeCursor(start.start_page_token))
        })
    }

    fn changes<'a>(&'a self, since: &'a ChangeCursor) -> Pending<'a, Changes> {
        Box::pin(self.changed(&since.0))
    }

    fn tells_deletions(&self) -> bool {
        true
    }
}

impl GoogleDrive {
    async fn changed(&self, since: &str) -> Result<Changes, SourceError> {
        let fields = format!("nextPageToken,newStartPageToken,changes(removed,fileId,file({FIELDS}))");
        let query = [
            ("pageToken", since),
            ("pageSize", "1000"),
            ("fields", fields.as_str()),
            ("supportsAllDrives", "true"),
            ("includeItemsFromAllDrives", "true"),
        ];
        let list: ChangeList = self.ask("changes", &query, Subject::Feed).await?;
        let more = list.next_page_token.is_some();
        let next =
            list.next_page_token.or(list.new_start_page_token).ok_or_else(|| SourceError::broken("Drive's list of changes has no end"))?;
        let mut changes =
            Changes { changed: Vec::new(), removed: Vec::new(), skipped: Vec::new(), next: ChangeCursor(next), more, traverse: false };
        let mut known = HashMap::from([(self.folder.clone(), true)]);
        // Of several changes of one file the last counts.
        let mut outcomes = BTreeMap::new();
        for change in list.changes {
            let Some(id) = change.file_id else {
                // A shared drive that is gone takes its files along.
                changes.traverse |= change.removed;
                continue;
            };
            let id = plain_id(id)?;
            let Some(file) = change.file.filter(|_| !change.removed) else {
                // What is removed may have been a folder, which takes its files along.
                changes.traverse = true;
                outcomes.insert(id, None);
                continue;
            };
            if file.is_folder() {
                changes.traverse = true;
                continue;
            }
            let belongs = !file.trashed && self.belongs(&file.parents, &mut known).await?;
            outcomes.insert(id, belongs.then_some(file));
        }
        for (id, file) in outcomes {
            match file.map(DriveFile::into_item).transpose()? {
                None => changes.removed.push(id),
                Some(Ok(item)) => changes.changed.push(item),
                Some(Err(skipped)) => changes.skipped.push(skipped),
            }
        }
        Ok(changes)
    }

    /// Whether one of the parents is the folder, or lies in it.
    async fn belongs(&self, parents: &[String], known: &mut HashMap<String, bool>) -> Result<bool, SourceError> {
        for parent in parents {
            if self.leads_up(parent, known).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn leads_up(&self, folder: &str, known: &mut HashMap<String, bool>) -> Result<bool, SourceError> {
        let (mut path, mut next) = (Vec::new(), Some(folder.to_owned()));
        let found = loop {
            let Some(id) = next else { break false };
            if let Some(found) = known.get(&id) {
                break *found;
            }
            if path.len() == MAX_DEPTH {
                break false;
            }
            let id = plain_id(id)?;
            path.push(id.clone());
            next = match self.ask::<DriveFile>(&format!("files/{id}"), &file_query(), Subject::File).await {
                Ok(folder) if folder.trashed => break false,
                Ok(folder) => folder.parents.into_iter().next(),
                Err(error) if error.kind() == SourceErrorKind::Gone => break false,
                Err(error) => return Err(error),
            };
        };
        known.extend(path.into_iter().map(|id| (id, found)));
        Ok(found)
    }
}
