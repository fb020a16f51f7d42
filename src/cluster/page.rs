//! Pages of lists, bounded in objects and in bytes: most objects are small, but one may have 1.5 MiB, the limit of etcd.

use std::error::Error;
use std::task::{Context, Poll};

use futures::TryFutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{LengthLimitError, Limited};
use tower::{Layer, Service};

/// The objects requested per page.
pub(crate) const PAGE_SIZE: u32 = 100;
/// The objects requested per page once a page exceeded `MAX_PAGE_BYTES`.
const SMALL_PAGE_SIZE: u32 = 16;
/// The objects requested per page once a small one exceeded it, too.
const SMALLEST_PAGE_SIZE: u32 = 4;
/// The largest page but of `SMALLEST_PAGE_SIZE` objects. It is held as text and as objects, which takes four times as much.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;

/// The objects to request per page after a page of `size` was too long.
pub(crate) fn smaller(size: Option<u32>) -> u32 {
    match size {
        Some(PAGE_SIZE) => SMALL_PAGE_SIZE,
        _ => SMALLEST_PAGE_SIZE,
    }
}

/// A layer of the cluster's client that limits the size of pages.
#[derive(Debug, Clone, Copy)]
pub struct Pages;

#[derive(Debug, Clone)]
pub struct Paged<S>(S);

impl<S> Layer<S> for Pages {
    type Service = Paged<S>;

    fn layer(&self, inner: S) -> Paged<S> {
        Paged(inner)
    }
}

impl<S, A, B> Service<Request<A>> for Paged<S>
where
    S: Service<Request<A>, Response = Response<B>, Future: Send + 'static>,
{
    type Response = Response<Limited<B>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let limit = |part: &str| part.strip_prefix("limit=")?.parse().ok();
        let limit = request.uri().query().and_then(|query| query.split('&').find_map(limit));
        let bytes = if let Some(PAGE_SIZE | SMALL_PAGE_SIZE) = limit { MAX_PAGE_BYTES } else { usize::MAX };
        Box::pin(self.0.call(request).map_ok(move |answer| answer.map(|body| Limited::new(body, bytes))))
    }
}

/// Whether a list failed because a page exceeded `MAX_PAGE_BYTES`.
pub(crate) fn is_too_long(error: &(dyn Error + 'static)) -> bool {
    error.is::<LengthLimitError>() || error.source().is_some_and(is_too_long)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http_body_util::Full;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::{Body, ClientBuilder};
    use kube::{Api, Client};
    use serde_json::json;

    use super::*;
    use crate::list;
    use crate::watch::{WatchEvent, follow};

    /// A client that receives pages of four objects of `bytes` each, and the queries that it sends.
    fn client(bytes: usize) -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let told = asked.clone();
        let server = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let is_last = query.contains("continue=next");
            let metadata =
                |at: u8| json!({"name": format!("{}{at}", if is_last { "b" } else { "a" }), "annotations": {"x": "x".repeat(bytes)}});
            let items: Vec<_> = (0..4).map(|at| json!({"metadata": metadata(at)})).collect();
            let next = if is_last { "" } else { "next" };
            let page = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "1", "continue": next}, "items": items});
            told.lock().unwrap().push(query);
            async move { Ok::<_, tower::BoxError>(Response::new(Full::new(page.to_string().into_bytes().into()))) }
        });
        (ClientBuilder::new(server, "default").with_layer(&Pages).build(), asked)
    }

    fn limits(asked: &Mutex<Vec<String>>) -> Vec<String> {
        let lists = |query: &String| query.split('&').find_map(|part| part.strip_prefix("limit=").map(str::to_owned));
        asked.lock().unwrap().iter().filter_map(lists).collect()
    }

    #[tokio::test]
    async fn a_page_that_is_too_long_is_requested_again_in_smaller_ones() {
        for (bytes, expected) in [(100, ["100", "100"].as_slice()), (MAX_PAGE_BYTES / 4, &["100", "16", "4", "4"])] {
            let (client, asked) = client(bytes);
            let api: Api<ConfigMap> = Api::all(client);
            let names = list::metadata(&api, |object| object.name.clone().unwrap()).await.unwrap();
            assert_eq!(names, ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3"]);
            assert_eq!(limits(&asked), expected);

            asked.lock().unwrap().clear();
            let (listed, mut heard) = tokio::sync::mpsc::channel(9);
            let watch = tokio::spawn(follow(api, None, None, move |what| {
                if let WatchEvent::Listed(all) = what {
                    listed.try_send(all.len()).ok();
                }
            }));
            assert_eq!(heard.recv().await, Some(8));
            watch.abort();
            assert_eq!(limits(&asked), expected);
        }
    }
}
