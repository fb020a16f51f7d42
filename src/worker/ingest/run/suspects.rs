//! Documents that a former process was reading when it ended without a word. Any of them may be what ended it, or none. They are read
//! last, one at a time: what ends a process twice is told by that from the others, which are stored by then.

use std::collections::BTreeSet;

use slipway_knowledge::source::Item;
use tracing::info;

use super::{Walk, patiently};

#[derive(Default)]
pub(super) struct Suspects {
    keys: BTreeSet<String>,
    /// Those that the source still has, with the hash of what is there of each.
    listed: Vec<(Item, Option<[u8; 32]>)>,
}

impl Suspects {
    /// Whether a document is left to the end.
    pub(super) fn puts_off(&mut self, item: &Item, known: Option<[u8; 32]>) -> bool {
        let is_suspect = self.keys.contains(&item.key);
        if is_suspect {
            self.listed.push((item.clone(), known));
        }
        is_suspect
    }
}

impl Walk<'_> {
    pub(super) async fn find_suspects(&mut self) -> anyhow::Result<()> {
        self.suspects.keys = patiently("documents that were being read", || self.ingestion.unfinished()).await?;
        if self.has_suspects() {
            info!(documents = self.suspects.keys.len(), "were being read when a pod ended, and are read last");
        }
        Ok(())
    }

    pub(super) fn has_suspects(&self) -> bool {
        !self.suspects.keys.is_empty()
    }

    /// Once everything else has been read.
    pub(super) async fn read_suspects(&mut self) -> anyhow::Result<()> {
        for (item, known) in std::mem::take(&mut self.suspects.listed) {
            self.document(&item, known).await?;
        }
        Ok(())
    }
}
