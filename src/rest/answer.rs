//! The forms of replies: `{"data": …}` as a rule, others where the specification has them.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use slipway_http::{Error, HeaderName, HeaderValue, Reply, StatusCode, header};

/// The resource version that a reply reflects. A request with this header gets a reply at least as new.
pub(crate) const VERSION: HeaderName = HeaderName::from_static("x-resource-version");

/// A reply of a handler.
pub(crate) trait Answer: Send + 'static {
    const STATUS: StatusCode = StatusCode::OK;
    const MEDIA: &'static str = "application/json";
    /// Whether the memory of the reply is charged elsewhere: by the list cache, an agent's call, or a stream.
    const IS_CHARGED_ELSEWHERE: bool = false;
    fn form(generator: &mut SchemaGenerator) -> Schema;
    fn reply(self) -> Result<Reply, Error>;
}

/// `{"data": …}`, and the resource version of what was read or written.
pub(crate) struct Data<T> {
    thing: T,
    version: Option<String>,
    /// Whether the version is also the ETag.
    tagged: bool,
}

impl<T> Data<T> {
    pub(crate) fn new(data: T) -> Self {
        Self { thing: data, version: None, tagged: false }
    }

    /// An object at its version, which is also its ETag.
    pub(crate) fn at(data: T, version: Option<String>) -> Self {
        Self { thing: data, version, tagged: true }
    }

    /// A deletion, which is visible from this version on.
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

/// `{"data": …}` of one object, from the API server or from the list cache.
pub(crate) struct Single<T>(SingleBody<T>);

enum SingleBody<T> {
    Read(Data<T>),
    Cached { json: String, version: u64 },
}

impl<T> Single<T> {
    pub(crate) fn read(data: Data<T>) -> Self {
        Self(SingleBody::Read(data))
    }

    /// The JSON of an object from the cache, and its version.
    pub(crate) fn cached(json: String, version: u64) -> Self {
        Self(SingleBody::Cached { json, version })
    }
}

impl<T: Serialize + JsonSchema + Send + 'static> Answer for Single<T> {
    fn form(generator: &mut SchemaGenerator) -> Schema {
        Data::<T>::form(generator)
    }

    fn reply(self) -> Result<Reply, Error> {
        match self.0 {
            SingleBody::Read(data) => data.reply(),
            SingleBody::Cached { json, version } => {
                tagged(Reply::bytes(Self::MEDIA, format!("{{\"data\":{json}}}")), Some(version.to_string()))
            }
        }
    }
}

/// `Data` with status 201.
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

/// `Data` with status 201 for a new object and 200 for an existing one.
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

/// `Data` with status 202: the work has begun.
pub(crate) struct Accepted<T>(pub Data<T>);

impl<T: Serialize + JsonSchema + Send + 'static> Answer for Accepted<T> {
    const STATUS: StatusCode = StatusCode::ACCEPTED;

    fn form(generator: &mut SchemaGenerator) -> Schema {
        Data::<T>::form(generator)
    }

    fn reply(self) -> Result<Reply, Error> {
        Ok(self.0.reply()?.with_status(Self::STATUS))
    }
}

/// A body without `data` around it.
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
    const IS_CHARGED_ELSEWHERE: bool = true;

    fn form(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }

    fn reply(self) -> Result<Reply, Error> {
        Ok(self.0)
    }
}

/// A zip archive.
pub(crate) struct Archive {
    pub content: Vec<u8>,
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Answer for Archive {
    const MEDIA: &'static str = "application/zip";

    fn form(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "binary"})
    }

    fn reply(self) -> Result<Reply, Error> {
        let reply = Reply::bytes(Self::MEDIA, self.content);
        Ok(self.headers.into_iter().fold(reply, |reply, (name, value)| reply.with_header(name, value)))
    }
}

/// Adds the version of an object as its ETag, for `If-Match`.
pub(crate) fn tagged(reply: Reply, version: Option<String>) -> Result<Reply, Error> {
    let Some(version) = version else { return Ok(reply) };
    let tag = HeaderValue::try_from(format!("\"{version}\"")).map_err(Error::internal)?;
    versioned(reply.with_header(header::ETAG, tag), Some(version))
}

pub(crate) fn versioned(reply: Reply, version: Option<String>) -> Result<Reply, Error> {
    let Some(version) = version else { return Ok(reply) };
    Ok(reply.with_header(VERSION, HeaderValue::try_from(version).map_err(Error::internal)?))
}
