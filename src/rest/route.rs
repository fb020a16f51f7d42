//! Routes, and the table that finds one by method and path.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use schemars::{Schema, SchemaGenerator};
use slipway_http::{Error, Method, Reply, Request, StatusCode};

use crate::access;
use crate::answer::Answer;
use crate::call::{Body, Call, Path};
use crate::canary_gate;
use crate::context::Context;
use crate::page;
use crate::permission::Permission;

/// Memory charged to a call that reads or writes through the API server, besides its body.
const CALL_BYTES: u64 = 256 * 1024;

type Handled = Pin<Box<dyn Future<Output = Result<Reply, Error>> + Send>>;

/// A query parameter, for the OpenAPI document. Handlers validate it.
#[derive(Clone, Copy)]
pub(crate) struct Parameter {
    pub name: &'static str,
    pub about: &'static str,
    pub kind: &'static str,
}

pub(crate) struct Route {
    pub method: Method,
    /// Below the base, with `{name}` for each variable part.
    pub path: &'static str,
    pub about: &'static str,
    pub permission: Permission,
    pub parameters: &'static [Parameter],
    pub status: StatusCode,
    pub media: &'static str,
    pub request: fn(&mut SchemaGenerator) -> Option<(&'static str, Schema)>,
    /// Whether a body is required, if the route takes one.
    pub body_required: bool,
    pub response: fn(&mut SchemaGenerator) -> Schema,
    /// Its third argument is the answer to a body that cannot be read, if the caller has no right in the whole team.
    handler: Box<dyn Fn(Call, Request, Option<Error>) -> Handled + Send + Sync>,
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
        let is_charged = !A::IS_CHARGED_ELSEWHERE && permission.authenticates();
        let handler = move |call: Call, request: Request, refusal: Option<Error>| -> Handled {
            Box::pin(async move {
                if is_charged {
                    call.slot.charge(CALL_BYTES)?;
                }
                let body = B::read(request).await.map_err(|error| refusal.unwrap_or(error))?;
                let Call { context, caller, team, path, query, headers, id, slot, body: () } = call;
                handler(Call { context, caller, team, path, query, headers, id, slot, body }).await?.reply()
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

    /// The reply. A gate has no other errors than that it stays shut.
    pub(crate) async fn answer(&self, context: Arc<Context>, path: Path, request: Request) -> Result<Reply, Error> {
        if self.permission != Permission::Gate {
            return self.handle(context, path, request).await;
        }
        let id = request.id().clone();
        match self.handle(context.clone(), path, request).await {
            Err(error) => canary_gate::shut(&context, &id, &error),
            answered => answered,
        }
    }

    /// Authenticates and authorizes before the body is read, but for routes that no user calls.
    async fn handle(&self, context: Arc<Context>, path: Path, request: Request) -> Result<Reply, Error> {
        let address = request.address();
        let permission = self.permission.within(page::asks_for_all(&request));
        let admitted = access::admit(&context, permission, &path, request.headers(), address).await?;
        if self.permission.authenticates() {
            request.slot().authenticated(admitted.holder(address))?;
        }
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
            slot: request.slot().clone(),
            context,
            body: (),
        };
        (self.handler)(call, request, admitted.refusal).await
    }

    /// The decoded variable parts of a matched path.
    fn parts(&self, given: &[&str]) -> Option<Path> {
        let names = self.path.split('/').filter_map(varies);
        let decoded = |part: &&str| percent_decode_str(part).decode_utf8().ok().map(Cow::into_owned);
        names.zip(given).map(|(name, part)| Some((name, decoded(part)?))).collect::<Option<_>>().map(Path)
    }
}

/// The name of a variable part of a route's path.
fn varies(part: &'static str) -> Option<&'static str> {
    part.strip_prefix('{')?.strip_suffix('}')
}

pub(crate) enum RouteMatch<'a> {
    Route(&'a Route, Path),
    OtherMethods(Vec<Method>),
    None,
}

/// All routes, as a tree of path parts.
#[derive(Default)]
pub(crate) struct RouteTable {
    /// The routes whose path ends here.
    routes: Vec<Route>,
    literal: Vec<(&'static str, RouteTable)>,
    varying: Option<Box<RouteTable>>,
}

impl RouteTable {
    pub(crate) fn new(routes: Vec<Route>) -> Self {
        let mut table = Self::default();
        for route in routes {
            let end = route.path[1..].split('/').fold(&mut table, Self::below);
            end.routes.push(route);
        }
        table
    }

    pub(crate) fn find(&self, method: &Method, path: &str) -> RouteMatch<'_> {
        let mut varying = Vec::new();
        let Some(end) = path.strip_prefix('/').and_then(|path| self.end(Some(path), &mut varying)) else { return RouteMatch::None };
        if let Some(route) = end.routes.iter().find(|route| route.method == method) {
            return route.parts(&varying).map_or(RouteMatch::None, |parts| RouteMatch::Route(route, parts));
        }
        let mut others: Vec<Method> = end.routes.iter().map(|route| route.method.clone()).collect();
        if others.contains(&Method::GET) {
            others.push(Method::HEAD);
        }
        others.push(Method::OPTIONS);
        RouteMatch::OtherMethods(others)
    }

    /// The subtree of `part`, created if there is none.
    fn below(&mut self, part: &'static str) -> &mut Self {
        if varies(part).is_some() {
            return self.varying.get_or_insert_default();
        }
        let known = self.literal.iter().position(|(literal, _)| *literal == part);
        let place = known.unwrap_or_else(|| {
            self.literal.push((part, Self::default()));
            self.literal.len() - 1
        });
        &mut self.literal[place].1
    }

    /// The subtree in which `path` ends, if routes do. Literal parts win over variable ones.
    fn end<'a>(&self, path: Option<&'a str>, varying: &mut Vec<&'a str>) -> Option<&Self> {
        let Some(path) = path else { return (!self.routes.is_empty()).then_some(self) };
        let (part, rest) = path.split_once('/').map_or((path, None), |(part, rest)| (part, Some(rest)));
        let literal = self.literal.iter().find(|(literal, _)| *literal == part);
        if let Some(end) = literal.and_then(|(_, below)| below.end(rest, varying)) {
            return Some(end);
        }
        let below = self.varying.as_ref().filter(|_| !part.is_empty())?;
        varying.push(part);
        let end = below.end(rest, varying);
        if end.is_none() {
            varying.pop();
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes;

    fn found(method: &Method, path: &str) -> String {
        match RouteTable::new(routes::all()).find(method, path) {
            RouteMatch::Route(route, Path(parts)) => {
                let parts: Vec<String> = parts.iter().map(|(name, part)| format!(" {name}={part}")).collect();
                format!("{}{}", route.path, parts.concat())
            }
            RouteMatch::OtherMethods(methods) => methods.iter().map(Method::as_str).collect::<Vec<_>>().join(","),
            RouteMatch::None => "nothing".to_owned(),
        }
    }

    #[test]
    fn a_path_leads_to_the_route_that_is_meant() {
        let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
        for (method, path, expected) in [
            (&get, "/agents", "/agents"),
            (&get, "/agents/ag_1", "/agents/{id} id=ag_1"),
            (&get, "/agents/a%2Fb", "/agents/{id} id=a/b"),
            (&get, "/agents/%ff", "nothing"),
            (&get, "/agents/", "nothing"),
            (&get, "/agents//chat", "nothing"),
            (&get, "/agents/x/", "nothing"),
            (&get, "agents", "nothing"),
            (&get, "/", "nothing"),
            (&post, "/agents/x/chat", "/agents/{id}/chat id=x"),
            (&get, "/agents/x/chat", "POST,OPTIONS"),
            (&get, "/agents/x/releases/diff", "/agents/{id}/releases/diff id=x"),
            (&get, "/agents/x/releases/7", "/agents/{id}/releases/{version} id=x version=7"),
            // A literal part without a match may still match a variable one.
            (&post, "/agents/x/releases/diff/deploy", "/agents/{id}/releases/{version}/deploy id=x version=diff"),
            (&post, "/skills/import", "/skills/import"),
            (&get, "/skills/import", "POST,OPTIONS"),
            (&delete, "/skills/x", "/skills/{id} id=x"),
            (&delete, "/agents", "GET,POST,HEAD,OPTIONS"),
            (&get, "/nowhere", "nothing"),
        ] {
            assert_eq!(found(method, path), expected, "{method} {path}");
        }
    }
}
