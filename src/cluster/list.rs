//! One-time lists, read in pages, of which only the requested fields are kept.

use std::fmt::Debug;

use kube::Resource;
use kube::api::{Api, ListParams, ObjectMeta};
use serde::de::DeserializeOwned;

use crate::page;

/// The result of `keep` for the metadata of each object in the API server. Metadata alone may exceed a megabyte.
pub async fn metadata<K, T>(api: &Api<K>, keep: impl Fn(&ObjectMeta) -> T) -> Result<Vec<T>, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let (mut kept, mut page) = (Vec::new(), ListParams::default().limit(page::PAGE_SIZE));
    loop {
        let list = match api.list_metadata(&page).await {
            Err(error) if page::is_too_long(&error) => {
                page.limit = Some(page::smaller(page.limit));
                continue;
            }
            list => list?,
        };
        kept.extend(list.items.iter().map(|object| keep(&object.metadata)));
        match list.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => page = page.continue_token(&next),
            None => return Ok(kept),
        }
    }
}
