//! Tokens of a page: texts, and tags with the attributes that matter.

use html5gum::Span;
use html5gum::emitters::callback::{CallbackEmitter, CallbackEvent};

/// The length of an attribute's value; what is beyond it is left out.
const VALUE_BYTES_MAX: usize = 2048;
const NAME_BYTES_MAX: usize = 12;

pub(super) enum Token {
    Text(String),
    Start(Tag),
    End(Name),
}

/// The name of an element, of which the first letters are enough to know those that matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Name {
    bytes: [u8; NAME_BYTES_MAX],
    length: u8,
}

impl Name {
    fn new(name: &[u8]) -> Self {
        let mut bytes = [0; NAME_BYTES_MAX];
        let length = name.len().min(NAME_BYTES_MAX);
        bytes[..length].copy_from_slice(&name[..length]);
        Self { bytes, length: u8::try_from(length).unwrap_or_default() }
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    pub(super) fn is(&self, names: &[&str]) -> bool {
        names.iter().any(|name| name.as_bytes() == self.text())
    }

    pub(super) fn heading(&self) -> Option<u8> {
        match self.text() {
            [b'h', level @ b'1'..=b'6'] => Some(level - b'0'),
            _ => None,
        }
    }
}

#[derive(Default)]
pub(super) struct Tag {
    pub name: Name,
    pub is_self_closing: bool,
    /// Name and value. Of two attributes of one name the first counts.
    attributes: Vec<(&'static str, String)>,
}

const ATTRIBUTES: [&str; 14] = [
    "alt",
    "aria-hidden",
    "charset",
    "class",
    "colspan",
    "content",
    "hidden",
    "href",
    "http-equiv",
    "id",
    "open",
    "role",
    "rowspan",
    "style",
];

impl Tag {
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn number(&self, name: &str) -> Option<usize> {
        self.attribute(name)?.trim().parse().ok()
    }
}

pub(super) fn emitter() -> CallbackEmitter<impl FnMut(CallbackEvent<'_>, Span<()>) -> Option<Token>, Token> {
    let (mut tag, mut has_value) = (Tag::default(), false);
    CallbackEmitter::new(move |event: CallbackEvent<'_>, _: Span<()>| match event {
        CallbackEvent::OpenStartTag { name } => {
            tag = Tag { name: Name::new(name), ..Tag::default() };
            None
        }
        CallbackEvent::AttributeName { name } => {
            let known = ATTRIBUTES.into_iter().find(|known| known.as_bytes() == name && tag.attribute(known).is_none());
            has_value = known.is_some();
            tag.attributes.extend(known.map(|name| (name, String::new())));
            None
        }
        CallbackEvent::AttributeValue { value } => {
            if let Some((_, last)) = tag.attributes.last_mut().filter(|_| has_value) {
                let room = VALUE_BYTES_MAX.saturating_sub(last.len());
                last.push_str(&String::from_utf8_lossy(&value[..value.len().min(room)]));
            }
            None
        }
        CallbackEvent::CloseStartTag { self_closing } => {
            tag.is_self_closing = self_closing;
            Some(Token::Start(std::mem::take(&mut tag)))
        }
        CallbackEvent::EndTag { name } => Some(Token::End(Name::new(name))),
        CallbackEvent::String { value } => Some(Token::Text(String::from_utf8_lossy(value).into_owned())),
        CallbackEvent::Comment { .. } | CallbackEvent::Doctype { .. } | CallbackEvent::Error(_) => None,
    })
}
