//! Vectors for chunks that lost theirs to another embedding model and that no source is read for again, such as those of files
//! that were uploaded and are gone: made from the chunks' own text.

use slipway_database::knowledge::{Ingestion, Unembedded};
use slipway_knowledge::chunk::embedded;
use tracing::info;

use super::document::{IngestTrouble, Reader, of_database, of_model};

/// How many chunks are embedded together.
const BATCH: u32 = 64;

/// After the traversal, which has embedded what is still there.
pub(super) async fn fill(ingestion: &Ingestion, reader: &Reader, after: &mut Option<(String, u32)>) -> Result<(), IngestTrouble> {
    let mut written = 0;
    loop {
        let chunks = ingestion.base().unembedded(after.as_ref(), BATCH).await.map_err(of_database)?;
        let Some(last) = chunks.last() else { break };
        let place = (last.revision.clone(), last.ordinal);
        let texts: Vec<String> = chunks.iter().map(|Unembedded { section, content, .. }| embedded(section, content)).collect();
        let vectors = reader.embed(&texts).await.map_err(of_model)?;
        let vectors: Vec<_> = chunks.iter().zip(vectors).map(|(chunk, vector)| (chunk, vector.0)).collect();
        ingestion.add_vectors(reader.model(), &vectors).await.map_err(of_database)?;
        written += vectors.len();
        *after = Some(place);
    }
    if written > 0 {
        info!(chunks = written, "chunks of documents that were not read again have vectors of the present model");
    }
    ingestion.all_embedded(reader.model()).await.map_err(of_database)
}
