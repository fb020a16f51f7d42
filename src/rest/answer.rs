//! The shapes of answers: `{"data": …}` as a rule, anything else where the specification says so.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use slipway_http::{Error, HeaderName, HeaderValue, Reply, StatusCode, header};

/// The version of the cluster that an answer speaks of. What is asked for with it is at least as new.
pub(crate) const VERSION: HeaderName = HeaderName::from_static("x-resource-version");

/// What a handler may answer.
pub(crate) trait Answer: Send + 'static {
    const STATUS: StatusCode = StatusCode::OK;
    const MEDIA: &'static str = "application/json";
    /// Whether what comes of it is charged elsewhere: it comes off a shelf, from an agent, or as a stream.
    const LIGHT: bool = false;
    fn form(generator: &mut SchemaGenerator) -> Schema;
    fn reply(self) -> Result<Reply, Error>;
}

/// `{"data": …}`, and the version of what was read or written.
pub(crate) struct Data<T> {
    thing: T,
    version: Option<String>,
    /// Whether the version is also that of the thing.
    tagged: bool,
}

impl<T> Data<T> {
    pub(crate) fn new(data: T) -> Self {
        Self { thing: data, version: None, tagged: false }
    }

    /// A thing in its version, which is its ETag as well.
    pub(crate) fn at(data: T, version: Option<String>) -> Self {
        Self { thing: data, version, tagged: true }
    }

    /// What is to be said of something that is no more since this version of the cluster.
    pub(crate) fn since(data: T, version: Option<String>) -> Self {
        Self { thing: data, version, tagged: false }
    }
}

#[derive(Serialize)]
struct Wrapped<T> {
    data: T,
}

impl<T: Serialize + JsonSchema + Send + 'static> Answer for Data<T> {
    fn form(generator: &mut SchemaGenerator) -> Schema {
        let inner = generator.subschema_for::<T>();
        json_schema!({"type": "object", "properties": {"data": inner}, "required": ["data"]})
    }

    fn reply(self) -> Result<Reply, Error> {
        let reply = Reply::json(&Wrapped { data: self.thing })?;
        if self.tagged { tagged(reply, self.version) } else { versioned(reply, self.version) }
    }
}

/// The same of what was read: by itself, or as it is kept.
pub(crate) struct Single<T>(Source<T>);

enum Source<T> {
    Read(Data<T>),
    Kept { json: String, version: u64 },
}

impl<T> Single<T> {
    pub(crate) fn read(data: Data<T>) -> Self {
        Self(Source::Read(data))
    }

    /// The JSON of a thing, and its own version.
    pub(crate) fn kept(json: String, version: u64) -> Self {
        Self(Source::Kept { json, version })
    }
}

impl<T: Serialize + JsonSchema + Send + 'static> Answer for Single<T> {
    fn form(generator: &mut SchemaGenerator) -> Schema {
        Data::<T>::form(generator)
    }

    fn reply(self) -> Result<Reply, Error> {
        match self.0 {
            Source::Read(data) => data.reply(),
            Source::Kept { json, version } => tagged(Reply::bytes(Self::MEDIA, format!("{{\"data\":{json}}}")), Some(version.to_string())),
        }
    }
}

/// The same with 201.
pub(crate) struct Created<T>(pub Data<T>);

impl<T: Serialize + JsonSchema + Send + 'static> Answer for Created<T> {
    const STATUS: StatusCode = StatusCode::CREATED;

    fn form(generator: &mut SchemaGenerator) -> Schema {
        Data::<T>::form(generator)
    }

    fn reply(self) -> Result<Reply, Error> {
        Ok(self.0.reply()?.with_status(Self::STATUS))
    }
}

/// The same with 201 where something was made, and with 200 where what stands is answered.
pub(crate) struct Made<T> {
    pub data: Data<T>,
    pub is_new: bool,
}

impl<T: Serialize + JsonSchema + Send + 'static> Answer for Made<T> {
    const STATUS: StatusCode = StatusCode::CREATED;

    fn form(generator: &mut SchemaGenerator) -> Schema {
        Data::<T>::form(generator)
    }

    fn reply(self) -> Result<Reply, Error> {
        let reply = self.data.reply()?;
        Ok(if self.is_new { reply.with_status(Self::STATUS) } else { reply })
    }
}

/// A body as it is, without `data` around it.
pub(crate) struct Plain<T>(pub T);

impl<T: Serialize + JsonSchema + Send + 'static> Answer for Plain<T> {
    fn form(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }

    fn reply(self) -> Result<Reply, Error> {
        Reply::json(&self.0)
    }
}

/// Server-sent events.
pub(crate) struct Events(pub Reply);

impl Answer for Events {
    const MEDIA: &'static str = "text/event-stream";
    const LIGHT: bool = true;

    fn form(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }

    fn reply(self) -> Result<Reply, Error> {
        Ok(self.0)
    }
}

/// The version of a thing that is sent: a client that changes it can say by `If-Match` which one it means.
pub(crate) fn tagged(reply: Reply, version: Option<String>) -> Result<Reply, Error> {
    let Some(version) = version else { return Ok(reply) };
    let tag = HeaderValue::try_from(format!("\"{version}\"")).map_err(Error::internal)?;
    versioned(reply.with_header(header::ETAG, tag), Some(version))
}

pub(crate) fn versioned(reply: Reply, version: Option<String>) -> Result<Reply, Error> {
    let Some(version) = version else { return Ok(reply) };
    Ok(reply.with_header(VERSION, HeaderValue::try_from(version).map_err(Error::internal)?))
}
