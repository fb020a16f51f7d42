//! XML parts as a stream of nodes, with limits of depth. Entities that a document defines itself are never expanded.

use std::borrow::Cow;
use std::io::BufRead;

use quick_xml::events::{BytesStart, Event};
use quick_xml::name::Prefix;
use quick_xml::{Reader, XmlVersion};

use super::package;
use crate::extract::Unreadable;

const DEPTH_MAX: usize = 1024;
const PREFIXES_MAX: usize = 16;
/// Of documents of today, and of those in the strict form.
const WORD: [&str; 2] =
    ["http://schemas.openxmlformats.org/wordprocessingml/2006/main", "http://purl.oclc.org/ooxml/wordprocessingml/main"];

pub(super) struct Xml<R> {
    reader: Reader<R>,
    buffer: Vec<u8>,
    part: String,
    depth: usize,
    /// The prefixes of WordprocessingML, wherever they were declared. To forget none keeps this linear.
    prefixes: Vec<String>,
}

pub(super) enum Node<'a> {
    Start(Element<'a>),
    /// The local name, and whether it is one of WordprocessingML.
    End(Cow<'a, str>, bool),
    Text(Cow<'a, str>),
}

pub(super) struct Element<'a> {
    start: BytesStart<'a>,
    pub is_word: bool,
}

impl Element<'_> {
    pub(super) fn name(&self) -> &str {
        self.start.local_name().into_inner()
    }

    pub(super) fn has_prefix(&self, prefix: &str) -> bool {
        self.start.name().prefix().is_some_and(|own| own.as_ref() == prefix)
    }

    /// The value of an attribute by its local name.
    pub(super) fn attribute(&self, name: &str) -> Option<String> {
        let mut attributes = self.start.attributes();
        let found = attributes.with_checks(false).flatten().find(|attribute| attribute.key.local_name().as_ref() == name)?;
        found.normalized_value(XmlVersion::Implicit1_0).ok().map(Cow::into_owned)
    }

    /// The value of a property that is on when nothing is said.
    pub(super) fn is_on(&self) -> bool {
        !matches!(self.attribute("val").as_deref(), Some("0" | "false" | "off" | "none"))
    }
}

impl<R: BufRead> Xml<R> {
    pub(super) fn new(stream: R, part: &str) -> Self {
        let mut reader = Reader::from_reader(stream);
        reader.config_mut().expand_empty_elements = true;
        reader.config_mut().allow_dangling_amp = true;
        Self { reader, buffer: Vec::new(), part: part.to_owned(), depth: 0, prefixes: Vec::new() }
    }

    /// None at the end.
    pub(super) fn next(&mut self) -> Result<Option<Node<'_>>, Unreadable> {
        self.buffer.clear();
        let event = match self.reader.read_event_into(&mut self.buffer) {
            Ok(event) => event,
            Err(quick_xml::Error::Io(error)) => return Err(package::fault(&self.part, &error)),
            Err(error) => return Err(Unreadable::Broken(format!("its part {} is no XML: {error}", self.part))),
        };
        Ok(Some(match event {
            Event::Start(start) | Event::Empty(start) => {
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return Err(Unreadable::TooLarge(format!("elements of its part {} are nested deeper than {DEPTH_MAX}", self.part)));
                }
                if start.attributes_raw().contains("xmlns") {
                    declare(&mut self.prefixes, &start);
                }
                let is_word = is_word(&self.prefixes, start.name().prefix().map(Prefix::into_inner));
                Node::Start(Element { start, is_word })
            }
            Event::End(end) => {
                self.depth = self.depth.saturating_sub(1);
                let is_word = is_word(&self.prefixes, end.name().prefix().map(Prefix::into_inner));
                Node::End(Cow::Owned(end.local_name().into_inner().to_owned()), is_word)
            }
            Event::Text(text) => Node::Text(Cow::Owned(text.xml10_content().into_owned())),
            Event::CData(text) => Node::Text(Cow::Owned(text.xml10_content().into_owned())),
            Event::GeneralRef(reference) => {
                let known = match reference.resolve_char_ref() {
                    Ok(Some(letter)) => Some(letter),
                    _ => match reference.as_ref() {
                        "amp" => Some('&'),
                        "lt" => Some('<'),
                        "gt" => Some('>'),
                        "quot" => Some('"'),
                        "apos" => Some('\''),
                        _ => None,
                    },
                };
                Node::Text(Cow::Owned(known.map(String::from).unwrap_or_default()))
            }
            Event::Eof if self.depth > 0 => return Err(Unreadable::Broken(format!("its part {} is cut off", self.part))),
            Event::Eof => return Ok(None),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => Node::Text(Cow::Borrowed("")),
        }))
    }

    /// Passes over the rest of the element that was begun last.
    pub(super) fn skip(&mut self) -> Result<(), Unreadable> {
        let outside = self.depth.saturating_sub(1);
        while self.depth > outside {
            if self.next()?.is_none() {
                break;
            }
        }
        Ok(())
    }
}

fn declare(prefixes: &mut Vec<String>, start: &BytesStart<'_>) {
    for attribute in start.attributes().with_checks(false).flatten() {
        let key = attribute.key.as_ref();
        let prefix = match key.strip_prefix("xmlns") {
            Some("") => "",
            Some(rest) => rest.strip_prefix(':').unwrap_or("?"),
            None => continue,
        };
        if WORD.contains(&attribute.value.as_ref()) && prefixes.len() < PREFIXES_MAX && !prefixes.iter().any(|known| known == prefix) {
            prefixes.push(prefix.to_owned());
        }
    }
}

fn is_word(prefixes: &[String], prefix: Option<&str>) -> bool {
    let prefix = prefix.unwrap_or_default();
    prefixes.iter().any(|known| known == prefix)
}
