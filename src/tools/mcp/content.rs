//! What a server says, turned into what the model is shown: its tools as specs, its results as text.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents, Tool};
use serde_json::{Value, json};

use super::Offered;
use super::names::{Taken, assign};
use crate::clip::{clip, edge, line};
use crate::outcome::{Outcome, Spec};

const DESCRIPTION: usize = 4096;
const SCHEMA: usize = 32 * 1024;

pub(super) fn offered(mut tools: Vec<Tool>, server: &str, taken: &Taken) -> Vec<Offered> {
    // The model sees the same order whatever order the server likes today.
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools.dedup_by(|a, b| a.name == b.name);
    let names = assign(server, &tools.iter().map(|tool| tool.name.as_ref()).collect::<Vec<_>>(), taken);
    let offer = |(tool, name): (Tool, String)| {
        let mut schema = Value::Object((*tool.input_schema).clone());
        if schema.to_string().len() > SCHEMA {
            tracing::warn!(tool = %name, "the schema of an MCP server's tool is too big; the tool is left out");
            return None;
        }
        if schema.get("type").is_none() {
            schema["type"] = json!("object");
        }
        let description = tool.description.or(tool.title.map(Into::into)).unwrap_or_default();
        let description = description[..edge(&description, DESCRIPTION)].to_owned();
        Some(Offered { spec: Spec { name, description, schema }, remote: tool.name.into_owned() })
    };
    tools.into_iter().zip(names).filter_map(offer).collect()
}

pub(super) fn tell(result: CallToolResult, limit: usize) -> Outcome {
    let texts: Vec<&str> = result.content.iter().filter_map(|block| block.as_text().map(|text| text.text.as_str())).collect();
    // Servers are to repeat structured content as text; only what is not repeated is added.
    let structured = result.structured_content.filter(|structured| {
        // One SDK wraps results that are no objects.
        let plain =
            structured.get("result").filter(|_| structured.as_object().is_some_and(|object| object.len() == 1)).unwrap_or(structured);
        let says = |text: &&str| {
            plain.as_str() == Some(*text) || serde_json::from_str::<Value>(text).is_ok_and(|said| said == *structured || said == *plain)
        };
        !structured.is_null() && !texts.iter().any(says)
    });
    let mut parts: Vec<String> = result.content.iter().map(block).collect();
    parts.extend(structured.map(|structured| structured.to_string()));
    let is_error = result.is_error.unwrap_or(false);
    let content = parts.join("\n");
    let content = match (content.trim().is_empty(), is_error) {
        (true, true) => "the tool failed without saying why".to_owned(),
        (true, false) => "done, without output".to_owned(),
        (false, _) => content,
    };
    clip(content, is_error, limit)
}

fn block(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => unseen("image", Some(&image.mime_type), &image.data),
        ContentBlock::Audio(audio) => unseen("audio", Some(&audio.mime_type), &audio.data),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[resource {}]\n{text}", line(uri, 500)),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                unseen(&format!("resource {}", line(uri, 500)), mime_type.as_deref(), blob)
            }
            _ => "[a resource of an unknown kind]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => {
            let about = link.description.as_deref().map(|about| format!(": {}", line(about, 1000))).unwrap_or_default();
            format!("[link to the resource {} named {}{about}]", line(&link.uri, 500), line(&link.name, 200))
        }
        _ => "[content of an unknown kind]".to_owned(),
    }
}

/// `base64` is four characters for three bytes.
fn unseen(what: &str, type_: Option<&str>, base64: &str) -> String {
    let size = base64.trim_end_matches('=').len() * 3 / 4;
    format!("[{what}, {}, {size} bytes: not text, so it is not shown]", line(type_.unwrap_or("of no declared type"), 100))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(result: Value) -> Outcome {
        tell(serde_json::from_value(result).unwrap(), 200)
    }

    #[test]
    fn every_kind_of_content_is_told() {
        for (result, expected) in [
            (json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}), "a\nb"),
            (
                json!({"content": [{"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}]}),
                "[image, image/png, 5 bytes: not text, so it is not shown]",
            ),
            (
                json!({"content": [{"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}]}),
                "[audio, audio/wav, 2 bytes: not text, so it is not shown]",
            ),
            (json!({"content": [{"type": "resource", "resource": {"uri": "x://y", "text": "t"}}]}), "[resource x://y]\nt"),
            (
                json!({"content": [{"type": "resource", "resource": {"uri": "x://y", "blob": "aGk="}}]}),
                "[resource x://y, of no declared type, 2 bytes: not text, so it is not shown]",
            ),
            (json!({"content": [{"type": "resource_link", "uri": "x://y", "name": "n"}]}), "[link to the resource x://y named n]"),
            (json!({"content": [], "structuredContent": {"a": 1}}), "{\"a\":1}"),
            (json!({"content": [{"type": "text", "text": "{ \"a\": 1 }"}], "structuredContent": {"a": 1}}), "{ \"a\": 1 }"),
            (json!({"content": [{"type": "text", "text": "see"}], "structuredContent": {"a": 1}}), "see\n{\"a\":1}"),
            (json!({"content": [{"type": "text", "text": "hi"}], "structuredContent": {"result": "hi"}}), "hi"),
            (json!({"content": [{"type": "text", "text": "[1]"}], "structuredContent": {"result": [1]}}), "[1]"),
            (json!({"content": []}), "done, without output"),
        ] {
            assert_eq!(told(result.clone()), Outcome::ok(expected), "{result}");
        }
        assert_eq!(told(json!({"content": [{"type": "text", "text": "no"}], "isError": true})), Outcome::error("no"));
        let long = told(json!({"content": [{"type": "text", "text": "x".repeat(500)}]}));
        assert!(long.truncated && long.content.len() < 260);
    }

    #[test]
    fn a_servers_tools_are_bounded_and_in_order() {
        let tools: Vec<Tool> = serde_json::from_value(json!([
            {"name": "b", "description": "x".repeat(5000), "inputSchema": {}},
            {"name": "a", "title": "A", "inputSchema": {"type": "object"}},
            {"name": "a", "inputSchema": {"type": "object"}},
            {"name": "huge", "inputSchema": {"type": "object", "description": "x".repeat(40_000)}},
        ]))
        .unwrap();
        let offered = offered(tools, "s", &Taken::default());
        let names: Vec<&str> = offered.iter().map(|offered| offered.spec.name.as_str()).collect();
        assert_eq!(names, ["s_a", "s_b"]);
        assert_eq!(offered[0].spec.description, "A");
        assert_eq!((offered[1].spec.description.len(), &offered[1].spec.schema), (4096, &json!({"type": "object"})));
    }
}
