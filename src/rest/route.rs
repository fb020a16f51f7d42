//! A route, and how one is found: a table of methods and paths, each with what it takes to be answered.

use std::pin::Pin;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use schemars::{Schema, SchemaGenerator};
use slipway_http::{Error, Method, Reply, Request, StatusCode};

use crate::access;
use crate::answer::Answer;
use crate::call::{Body, Call, Path};
use crate::context::Context;
use crate::right::Permission;

type Handled = Pin<Box<dyn Future<Output = Result<Reply, Error>> + Send>>;

/// A parameter of the query, for the document. What it must be, the handler says.
pub(crate) struct Parameter {
    pub name: &'static str,
    pub about: &'static str,
    pub kind: &'static str,
}

pub(crate) struct Route {
    pub method: Method,
    /// Below the base, with `{name}` for each part that varies.
    pub path: &'static str,
    pub about: &'static str,
    pub permission: Permission,
    pub parameters: &'static [Parameter],
    pub status: StatusCode,
    pub media: &'static str,
    pub request: fn(&mut SchemaGenerator) -> Option<(&'static str, Schema)>,
    /// Whether a request must bring a body, if it may.
    pub body_required: bool,
    pub response: fn(&mut SchemaGenerator) -> Schema,
    handler: Box<dyn Fn(Call, Request) -> Handled + Send + Sync>,
}

impl Route {
    pub(crate) fn new<B, A, F>(
        method: Method,
        path: &'static str,
        permission: Permission,
        about: &'static str,
        handler: impl Fn(Call<B>) -> F + Copy + Send + Sync + 'static,
    ) -> Self
    where
        B: Body,
        A: Answer,
        F: Future<Output = Result<A, Error>> + Send + 'static,
    {
        let handler = move |call: Call, request: Request| -> Handled {
            Box::pin(async move {
                let body = B::read(request).await?;
                let Call { context, caller, team, path, query, headers, id, body: () } = call;
                handler(Call { context, caller, team, path, query, headers, id, body }).await?.reply()
            })
        };
        Self {
            method,
            path,
            about,
            permission,
            parameters: &[],
            status: A::STATUS,
            media: A::MEDIA,
            request: B::form,
            body_required: B::REQUIRED,
            response: A::form,
            handler: Box::new(handler),
        }
    }

    #[must_use]
    pub(crate) fn with(self, parameters: &'static [Parameter]) -> Self {
        Self { parameters, ..self }
    }

    /// Asks who calls and whether they may, and only then reads the body.
    pub(crate) async fn answer(&self, context: Arc<Context>, path: Path, request: Request) -> Result<Reply, Error> {
        let admitted = access::admit(&context, self.permission, &path, request.headers()).await?;
        let query = request.query()?;
        if self.parameters.is_empty() {
            request.query()?.end()?;
        }
        let call = Call {
            caller: admitted.caller,
            team: admitted.team,
            path,
            query,
            headers: request.headers().clone(),
            id: request.id().clone(),
            context,
            body: (),
        };
        (self.handler)(call, request).await
    }

    /// The parts of `path` that vary, if it is one of this route.
    fn matches(&self, path: &str) -> Option<Path> {
        let mut pattern = self.path[1..].split('/');
        let mut given = path[1..].split('/');
        let mut found = Vec::new();
        loop {
            match (pattern.next(), given.next()) {
                (None, None) => return Some(Path(found)),
                (Some(wanted), Some(part)) => match wanted.strip_prefix('{').and_then(|wanted| wanted.strip_suffix('}')) {
                    Some(name) if !part.is_empty() => found.push((name, percent_decode_str(part).decode_utf8().ok()?.into_owned())),
                    None if wanted == part => {}
                    _ => return None,
                },
                _ => return None,
            }
        }
    }
}

pub(crate) enum Found<'a> {
    Route(&'a Route, Path),
    OtherMethods(Vec<Method>),
    Nothing,
}

pub(crate) struct Table(Vec<Route>);

impl Table {
    pub(crate) fn new(routes: Vec<Route>) -> Self {
        Self(routes)
    }

    pub(crate) fn find(&self, method: &Method, path: &str) -> Found<'_> {
        let mut found: Vec<(&Route, Path)> = self.0.iter().filter_map(|route| Some((route, route.matches(path)?))).collect();
        // Of `/skills/import` and `/skills/{id}` the first is meant.
        let Some(fewest) = found.iter().map(|(_, parts)| parts.0.len()).min() else { return Found::Nothing };
        found.retain(|(_, parts)| parts.0.len() == fewest);
        let mut others: Vec<Method> = found.iter().map(|(route, _)| route.method.clone()).collect();
        if let Some((route, parts)) = found.into_iter().find(|(route, _)| route.method == method) {
            return Found::Route(route, parts);
        }
        if others.contains(&Method::GET) {
            others.push(Method::HEAD);
        }
        others.push(Method::OPTIONS);
        Found::OtherMethods(others)
    }
}
