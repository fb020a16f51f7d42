//! Atlassian Document Format to HTML: the structure and the words, without what is only seen. What is not known is read through.
//! Its depth is bounded by the JSON parser's.

use std::fmt::Write;

use serde_json::Value;

use super::escaped;

pub(crate) fn html(document: &Value) -> String {
    let mut out = String::new();
    // Fields that Jira's older interface wrote hold plain text.
    if let Some(text) = document.as_str() {
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let _ = writeln!(out, "<p>{}</p>", escaped(line));
        }
        return out;
    }
    node(document, &mut out);
    out
}

fn node(value: &Value, out: &mut String) {
    let attribute = |name: &str| value["attrs"][name].as_str().unwrap_or_default();
    match value["type"].as_str().unwrap_or_default() {
        "text" => text(value, out),
        "paragraph" => wrapped("p", value, out),
        "heading" => {
            // The title is the first level.
            let level = value["attrs"]["level"].as_u64().unwrap_or(1).clamp(1, 5) + 1;
            wrapped(&format!("h{level}"), value, out);
        }
        "bulletList" | "taskList" | "decisionList" => wrapped("ul", value, out),
        "orderedList" => wrapped("ol", value, out),
        "listItem" | "taskItem" | "decisionItem" => wrapped("li", value, out),
        "blockquote" | "panel" => wrapped("blockquote", value, out),
        "codeBlock" => wrapped("pre", value, out),
        "table" => wrapped("table", value, out),
        "tableRow" => wrapped("tr", value, out),
        "tableHeader" => wrapped("th", value, out),
        "tableCell" => wrapped("td", value, out),
        "expand" | "nestedExpand" => {
            let _ = writeln!(out, "<p>{}</p>", escaped(attribute("title")));
            children(value, out);
        }
        "hardBreak" => out.push_str("<br>"),
        "rule" => out.push_str("<hr>\n"),
        "mention" | "status" => out.push_str(&escaped(attribute("text"))),
        "emoji" => {
            let text = attribute("text");
            out.push_str(&escaped(if text.is_empty() { attribute("shortName") } else { text }));
        }
        "inlineCard" | "blockCard" | "embedCard" => out.push_str(&escaped(attribute("url"))),
        "date" => {
            let time = attribute("timestamp").parse().ok().and_then(|time| jiff::Timestamp::from_millisecond(time).ok());
            out.push_str(&time.map(|time| time.strftime("%Y-%m-%d").to_string()).unwrap_or_default());
        }
        "media" => out.push_str(&escaped(attribute("alt"))),
        _ => children(value, out),
    }
}

fn text(value: &Value, out: &mut String) {
    let text = escaped(value["text"].as_str().unwrap_or_default());
    let marks = value["marks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_code = marks.iter().any(|mark| mark["type"] == "code");
    let link = marks.iter().find(|mark| mark["type"] == "link").and_then(|mark| mark["attrs"]["href"].as_str());
    let text = if is_code { format!("<code>{text}</code>") } else { text };
    let _ = match link {
        Some(href) => write!(out, "<a href=\"{}\">{text}</a>", escaped(href)),
        None => write!(out, "{text}"),
    };
}

fn wrapped(tag: &str, value: &Value, out: &mut String) {
    let _ = write!(out, "<{tag}>");
    children(value, out);
    let _ = writeln!(out, "</{tag}>");
}

fn children(value: &Value, out: &mut String) {
    for child in value["content"].as_array().map(Vec::as_slice).unwrap_or_default() {
        node(child, out);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn structure_and_words_are_kept() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let paragraph = |of: Value| json!({"type": "paragraph", "content": [of]});
        for (node, expected) in [
            (paragraph(text("a < b & \"c\"")), "<p>a &lt; b &amp; &quot;c&quot;</p>\n"),
            (json!({"type": "heading", "attrs": {"level": 2}, "content": [text("H")]}), "<h3>H</h3>\n"),
            (
                json!({"type": "bulletList", "content": [{"type": "listItem", "content": [paragraph(text("one"))]}]}),
                "<ul><li><p>one</p>\n</li>\n</ul>\n",
            ),
            (
                json!({"type": "table", "content": [{"type": "tableRow", "content": [{"type": "tableHeader", "content": [text("h")]}, {"type": "tableCell", "content": [text("c")]}]}]}),
                "<table><tr><th>h</th>\n<td>c</td>\n</tr>\n</table>\n",
            ),
            (
                json!({"type": "text", "text": "x", "marks": [{"type": "link", "attrs": {"href": "https://a/?b=\"c"}}]}),
                "<a href=\"https://a/?b=&quot;c\">x</a>",
            ),
            (json!({"type": "mention", "attrs": {"id": "1", "text": "@Ava"}}), "@Ava"),
            (json!({"type": "date", "attrs": {"timestamp": "1767225600000"}}), "2026-01-01"),
            (json!({"type": "tomorrow", "content": [paragraph(text("inside"))]}), "<p>inside</p>\n"),
            (json!("plain\n\n<text>"), "<p>plain</p>\n<p>&lt;text&gt;</p>\n"),
            (Value::Null, ""),
        ] {
            assert_eq!(html(&node), expected, "{node}");
        }
    }
}
