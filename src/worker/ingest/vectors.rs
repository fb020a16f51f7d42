//! Vectors for chunks that lost theirs to another embedding model and that no source is read for again, such as those of files
//! that were uploaded and are gone: made from the chunks' own text.

use slipway_database::knowledge::{Ingestion, Unembedded};
use slipway_knowledge::chunk::embedded;
use slipway_models::embedding::Vector;
use tracing::{info, warn};

use super::document::{Embedded, IngestTrouble, Reader, of_database};

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
        let vectors = embed_each(reader, &texts).await?;
        let vectors: Vec<_> = chunks.iter().zip(vectors).filter_map(|(chunk, vector)| Some((chunk, vector?.0))).collect();
        ingestion.add_vectors(reader.model(), &vectors).await.map_err(of_database)?;
        written += vectors.len();
        *after = Some(place);
    }
    if written > 0 {
        info!(chunks = written, "chunks of documents that were not read again have vectors of the present model");
    }
    ingestion.all_embedded(reader.model()).await.map_err(of_database)
}

/// A vector for each text. None for one that the model refuses, which is found in full text alone.
async fn embed_each(reader: &Reader, texts: &[String]) -> Result<Vec<Option<Vector>>, IngestTrouble> {
    if let Embedded::Vectors(vectors) = reader.embed(texts).await? {
        return Ok(vectors.into_iter().map(Some).collect());
    }
    let mut vectors = Vec::with_capacity(texts.len());
    for text in texts {
        match reader.embed(std::slice::from_ref(text)).await? {
            Embedded::Vectors(alone) => vectors.extend(alone.into_iter().map(Some)),
            Embedded::Refused(why) => {
                warn!(why, "a chunk of a document that is not read again is found in full text alone");
                vectors.push(None);
            }
        }
    }
    Ok(vectors)
}
