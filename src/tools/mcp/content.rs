//! Converts a server's tools to specs, and its results to text.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents, Tool};
use serde_json::{Value, json};

use super::OfferedTool;
use super::digest::canonical;
use super::names::{ReservedNames, assign};
use crate::clip::{clip, edge, line};
use crate::outcome::{Spec, ToolOutcome};

const MAX_DESCRIPTION_BYTES: usize = 4096;
const MAX_SCHEMA_BYTES: usize = 32 * 1024;

pub(super) fn offered(mut tools: Vec<Tool>, server: &str, reserved: &ReservedNames) -> Vec<OfferedTool> {
    // Sorted, so that the result does not depend on the server's order, even with two tools of one name.
    tools.sort_by_cached_key(|tool| (tool.name.clone(), canonical(tool)));
    tools.dedup_by(|a, b| a.name == b.name);
    let names = assign(server, &tools.iter().map(|tool| tool.name.as_ref()).collect::<Vec<_>>(), reserved);
    let offer = |(tool, name): (Tool, String)| {
        let mut schema = Value::Object((*tool.input_schema).clone());
        if schema.to_string().len() > MAX_SCHEMA_BYTES {
            tracing::warn!(tool = %name, "the schema of an MCP server's tool is too big; the tool is left out");
            return None;
        }
        if schema.get("type").is_none() {
            schema["type"] = json!("object");
        }
        let description = tool.description.or(tool.title.map(Into::into)).unwrap_or_default();
        let description = description[..edge(&description, MAX_DESCRIPTION_BYTES)].to_owned();
        let only_reads = tool.annotations.is_some_and(|said| said.read_only_hint == Some(true));
        Some(OfferedTool { spec: Spec { name, description, schema }, remote: tool.name.into_owned(), only_reads })
    };
    tools.into_iter().zip(names).filter_map(offer).collect()
}

pub(super) fn outcome(result: CallToolResult, limit: usize) -> ToolOutcome {
    let texts: Vec<&str> = result.content.iter().filter_map(|block| block.as_text().map(|text| text.text.as_str())).collect();
    // Servers should repeat structured content as text; it is added if they do not.
    let structured = result.structured_content.filter(|structured| {
        // One SDK wraps results that are not objects.
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
        (true, true) => "the tool failed without a message".to_owned(),
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

/// A note in place of binary content. Base64 has four characters for three bytes.
fn unseen(what: &str, type_: Option<&str>, base64: &str) -> String {
    let size = base64.trim_end_matches('=').len() * 3 / 4;
    format!("[{what}, {}, {size} bytes: not text, so it is not shown]", line(type_.unwrap_or("of no declared type"), 100))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told(result: Value) -> ToolOutcome {
        outcome(serde_json::from_value(result).unwrap(), 200)
    }

    #[test]
    fn a_tool_only_reads_if_its_server_says_so() {
        let tool = |name: &str, annotations: Value| {
            let tool = json!({"name": name, "inputSchema": {"type": "object"}, "annotations": annotations});
            serde_json::from_value::<Tool>(tool).unwrap()
        };
        let tools = vec![
            tool("a", json!({"readOnlyHint": true})),
            tool("b", json!({"readOnlyHint": false})),
            tool("c", json!({"destructiveHint": false})),
            tool("d", json!({})),
        ];
        let reserved = ReservedNames::default();
        let reads: Vec<_> = offered(tools, "s", &reserved).into_iter().map(|tool| tool.only_reads).collect();
        assert_eq!(reads, [true, false, false, false]);
    }

    #[test]
    fn every_kind_of_content_becomes_text() {
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
            assert_eq!(told(result.clone()), ToolOutcome::ok(expected), "{result}");
        }
        assert_eq!(told(json!({"content": [{"type": "text", "text": "no"}], "isError": true})), ToolOutcome::error("no"));
        let long = told(json!({"content": [{"type": "text", "text": "x".repeat(500)}]}));
        assert!(long.truncated && long.content.len() < 260);
    }

    #[test]
    fn a_servers_tools_are_bounded_and_sorted() {
        let tools: Vec<Tool> = serde_json::from_value(json!([
            {"name": "b", "description": "x".repeat(5000), "inputSchema": {}},
            {"name": "a", "title": "A", "inputSchema": {"type": "object"}},
            {"name": "a", "inputSchema": {"type": "object"}},
            {"name": "huge", "inputSchema": {"type": "object", "description": "x".repeat(40_000)}},
        ]))
        .unwrap();
        let offered = offered(tools, "s", &ReservedNames::default());
        let names: Vec<&str> = offered.iter().map(|offered| offered.spec.name.as_str()).collect();
        assert_eq!(names, ["s_a", "s_b"]);
        assert_eq!(offered[0].spec.description, "A");
        assert_eq!((offered[1].spec.description.len(), &offered[1].spec.schema), (4096, &json!({"type": "object"})));
    }

    #[test]
    fn duplicate_names_resolve_to_the_same_tool_in_any_order() {
        let tool = |description: &str| json!({"name": "a", "description": description, "inputSchema": {}});
        let first =
            |tools: Value| offered(serde_json::from_value(tools).unwrap(), "s", &ReservedNames::default())[0].spec.description.clone();
        assert_eq!(first(json!([tool("good"), tool("bad")])), first(json!([tool("bad"), tool("good")])));
    }

    /// Any JSON, often resembling the results and tools of servers.
    fn anything() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "text|image|audio|resource|resource_link|object|hi|x://y|aGk=".prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("type|text|data|mimeType|resource|uri|blob|name|result|properties", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn block() -> impl Strategy<Value = Value> {
        let text = || prop_oneof![any::<String>(), Just("x".repeat(300)), Just("é\n".repeat(100))];
        prop_oneof![
            text().prop_map(|text| json!({"type": "text", "text": text})),
            (text(), text()).prop_map(|(data, kind)| json!({"type": "image", "data": data, "mimeType": kind})),
            (text(), text()).prop_map(|(uri, text)| json!({"type": "resource", "resource": {"uri": uri, "text": text}})),
            (text(), text(), text())
                .prop_map(|(uri, blob, kind)| json!({"type": "resource", "resource": {"uri": uri, "blob": blob, "mimeType": kind}})),
            (text(), text(), text())
                .prop_map(|(uri, name, about)| json!({"type": "resource_link", "uri": uri, "name": name, "description": about})),
            anything(),
        ]
    }

    fn server_tool() -> impl Strategy<Value = Value> {
        let description = prop_oneof![any::<String>(), Just("é".repeat(3000))];
        ("[ab./-]{0,3}|.{0,70}", prop::option::of(description), prop::collection::btree_map("type|properties|[xy]", anything(), 0..3))
            .prop_map(|(name, description, schema)| json!({"name": name, "description": description, "inputSchema": schema}))
    }

    proptest! {
        #[test]
        fn any_result_becomes_text_of_bounded_length(blocks in prop::collection::vec(block(), 0..4), structured in anything(), failed in any::<Option<bool>>()) {
            let result = json!({"content": blocks, "structuredContent": structured, "isError": failed});
            let Ok(result) = serde_json::from_value::<CallToolResult>(result) else { return Ok(()) };
            let outcome = outcome(result, 200);
            prop_assert!(outcome.content.len() <= 200 + 64, "{} bytes", outcome.content.len());
            prop_assert!(!outcome.content.trim().is_empty());
            prop_assert_eq!(outcome.is_error, failed == Some(true));
        }

        #[test]
        fn the_same_digest_is_the_same_offer(tools in prop::collection::vec(server_tool(), 0..5).prop_flat_map(|tools| (Just(tools.clone()), Just(tools).prop_shuffle()))) {
            let read = |tools: Vec<Value>| serde_json::from_value::<Vec<Tool>>(tools.into());
            let (Ok(one), Ok(other)) = (read(tools.0), read(tools.1)) else { return Ok(()) };
            prop_assert_eq!(super::super::digest::of(&one), super::super::digest::of(&other));
            let (one, other) = (offered(one, "s", &ReservedNames::default()), offered(other, "s", &ReservedNames::default()));
            let shown = |offered: &[OfferedTool]| offered.iter().map(|offered| (offered.spec.clone(), offered.remote.clone())).collect::<Vec<_>>();
            prop_assert_eq!(shown(&one), shown(&other));
            let names: std::collections::BTreeSet<&str> = one.iter().map(|offered| offered.spec.name.as_str()).collect();
            prop_assert_eq!(names.len(), one.len());
            for OfferedTool { spec, .. } in &one {
                prop_assert!(spec.name.len() <= 64 && spec.description.len() <= MAX_DESCRIPTION_BYTES && spec.schema.is_object(), "{:?}", spec);
            }
        }
    }
}
