//! The document as a self-contained HTML page. Nothing is collapsed, so that the browser's search finds everything.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

/// The depth to which nested schemas are shown.
const DEEPEST: usize = 4;

const HEAD: &str = concat!(
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">",
    "<title>Slipway API</title>\n<style>:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;margin:0;overflow-wrap:anywhere}",
    "main{max-width:60rem;margin:auto;padding:1rem}h2{margin-top:2.5rem}h3{border-top:1px solid #8886;padding-top:1rem;margin-bottom:0}",
    "h4{margin:.8rem 0 0}ul{margin:.2rem 0;padding-left:1.2rem}nav ul{list-style:none;padding:0}a{color:inherit}p{margin:.4rem 0}",
    "pre{overflow:auto;padding:.6rem;background:#8882;font-size:.85rem;margin:.4rem 0}code{font-size:.9em}i{opacity:.75}</style></head>\n",
    "<body><main><h1>Slipway API</h1>\n<p>Version ",
    env!("CARGO_PKG_VERSION"),
    ". Paths begin with <code>/api/v1</code>. The same for programs: <a href=\"openapi.json\">openapi.json</a>.</p>\n",
);

pub(super) fn page(document: &Value) -> String {
    let mut page = String::from(HEAD);
    for text in document["info"]["description"].as_str().unwrap_or_default().split("\n\n") {
        let _ = writeln!(page, "<p>{}</p>", escaped(text));
    }
    page.push_str("<nav><h2>Endpoints</h2><ul>\n");
    each(document, |_, method, path, operation| {
        let (id, about) = (text(operation, "operationId"), text(operation, "summary"));
        let _ = writeln!(page, "<li><a href=\"#{id}\"><b>{method}</b> <code>{path}</code></a> {about}</li>");
    });
    page.push_str("</ul></nav>\n");
    let mut refusals = BTreeMap::new();
    each(document, |tag, method, path, operation| {
        if let Some(tag) = tag {
            let _ = writeln!(page, "<h2>{tag}</h2>");
        }
        let id = text(operation, "operationId");
        let _ = writeln!(
            page,
            "<h3 id=\"{id}\">{method} <code>{path}</code></h3>\n<p>{} {}</p>",
            text(operation, "summary"),
            text(operation, "description")
        );
        describe(&mut page, document, operation, &mut refusals);
    });
    page.push_str("<h2>Refusals</h2>\n<ul>\n");
    for (status, about) in refusals {
        let _ = writeln!(page, "<li id=\"status-{status}\"><code>{status}</code> {about}</li>");
    }
    page.push_str("</ul>\n<h2>Forms</h2>\n");
    for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
        let _ = writeln!(page, "<h3 id=\"form-{name}\">{name}</h3>\n<p>{}</p>", text(schema, "description"));
        fields(&mut page, schema, 0);
    }
    page.push_str("</main></body></html>\n");
    page
}

/// Visits every operation; the first of each tag with the tag.
fn each(document: &Value, mut visit: impl FnMut(Option<&str>, &str, &str, &Value)) {
    let mut last = "";
    for (path, operations) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in operations.as_object().into_iter().flatten() {
            let tag = operation["tags"][0].as_str().unwrap_or_default();
            visit((tag != last).then_some(tag), &method.to_uppercase(), &escaped(path), operation);
            last = tag;
        }
    }
}

fn describe(page: &mut String, document: &Value, operation: &Value, refusals: &mut BTreeMap<String, String>) {
    let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !parameters.is_empty() {
        page.push_str("<h4>Parameters</h4><ul>\n");
    }
    for parameter in parameters {
        let parameter = followed(document, parameter);
        let _ = writeln!(
            page,
            "<li><code>{}</code> <i>{}, {}</i> {}</li>",
            text(parameter, "name"),
            text(parameter, "in"),
            shape(&parameter["schema"]),
            text(parameter, "description")
        );
    }
    if !parameters.is_empty() {
        page.push_str("</ul>\n");
    }
    content(page, "Body", &operation["requestBody"]["content"]);
    let mut refused = Vec::new();
    for (status, response) in operation["responses"].as_object().into_iter().flatten() {
        if response.get("$ref").is_some() {
            refusals.insert(status.clone(), text(followed(document, response), "description"));
            refused.push(format!("<a href=\"#status-{status}\">{status}</a>"));
        } else {
            content(page, &format!("Answer {status}"), &response["content"]);
        }
    }
    let _ = writeln!(page, "<p>Refused with <a href=\"#form-Error\">an error</a>: {}</p>", refused.join(", "));
}

fn content(page: &mut String, title: &str, content: &Value) {
    for (media, content) in content.as_object().into_iter().flatten() {
        let schema = &content["schema"];
        let _ = writeln!(
            page,
            "<h4>{title} <code>{}</code> <i>{}</i></h4>\n<p>{}</p>",
            escaped(media),
            shape(schema),
            text(schema, "description")
        );
        fields(page, schema, 0);
        match &content["example"] {
            Value::Null => {}
            Value::String(example) => {
                let _ = writeln!(page, "<pre>{}</pre>", escaped(example));
            }
            example => {
                let _ = writeln!(page, "<pre>{}</pre>", escaped(&serde_json::to_string_pretty(example).unwrap_or_default()));
            }
        }
    }
}

fn fields(page: &mut String, schema: &Value, depth: usize) {
    let inner = if schema["items"].get("properties").is_some() { &schema["items"] } else { schema };
    let Some(properties) = inner["properties"].as_object().filter(|_| depth < DEEPEST) else { return alternatives(page, inner, depth) };
    page.push_str("<ul>\n");
    for (name, field) in properties {
        let required = inner["required"].as_array().is_some_and(|required| required.iter().any(|known| known == name));
        let needed = if required { ", required" } else { "" };
        let _ = write!(page, "<li><code>{}</code> <i>{}{needed}</i> {}", escaped(name), shape(field), text(field, "description"));
        fields(page, field.get("contentSchema").unwrap_or(field), depth + 1);
        page.push_str("</li>\n");
    }
    page.push_str("</ul>\n");
}

/// The fields of each alternative, by its type.
fn alternatives(page: &mut String, schema: &Value, depth: usize) {
    let is_of_objects = |list: &&Vec<Value>| depth < DEEPEST && list.iter().all(|one| one["properties"].get("type").is_some());
    let Some(list) = schema["oneOf"].as_array().filter(is_of_objects) else { return };
    page.push_str("<ul>\n");
    for one in list {
        let _ = write!(page, "<li><code>{}</code>", shape(&one["properties"]["type"]));
        fields(page, one, depth + 1);
        page.push_str("</li>\n");
    }
    page.push_str("</ul>\n");
}

/// A schema in a few words.
fn shape(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
        return format!("<a href=\"#form-{name}\">{name}</a>");
    }
    for several in ["anyOf", "oneOf"] {
        if let Some(list) = schema[several].as_array() {
            return list.iter().map(shape).collect::<Vec<_>>().join(" or ");
        }
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(|value| escaped(value.as_str().unwrap_or(&value.to_string()))).collect::<Vec<_>>().join(" | ");
    }
    let bounds: Vec<String> = ["minimum", "maximum", "default", "pattern", "format", "const"]
        .iter()
        .filter_map(|name| schema.get(*name).map(|value| format!("{name} {}", escaped(value.as_str().unwrap_or(&value.to_string())))))
        .collect();
    let kind = match &schema["type"] {
        Value::String(kind) if kind == "array" => format!("list of {}", shape(&schema["items"])),
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => "any".to_owned(),
    };
    if bounds.is_empty() { kind } else { format!("{kind}, {}", bounds.join(", ")) }
}

fn followed<'a>(document: &'a Value, node: &'a Value) -> &'a Value {
    let found = node["$ref"].as_str().and_then(|reference| document.pointer(reference.trim_start_matches('#')));
    found.unwrap_or(node)
}

fn text(node: &Value, name: &str) -> String {
    escaped(node[name].as_str().unwrap_or_default())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::document;
    use crate::routes;

    #[test]
    fn the_page_needs_nothing_from_anywhere_else() {
        let page = page(&document(&routes::all()));
        assert!(page.contains("/agents/{id}") && page.contains("id=\"form-Agent\""));
        for foreign in ["<script", "<link", "src=", "@import", "url(", "http-equiv"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert!(page.len() < 500_000, "{} bytes", page.len());
    }

    #[test]
    fn what_is_of_one_of_several_types_is_told_by_type() {
        let page = page(&document(&routes::all()));
        let (_, form) = page.split_once("id=\"form-NewIntegration\"").unwrap();
        let form = form.split("id=\"form-").next().unwrap();
        for (kind, field) in [("s3", "secret_access_key"), ("webhook", "signing_secret"), ("confluence", "base_url")] {
            let (_, of) = form.split_once(&format!("<code>{kind}</code>")).unwrap_or_else(|| panic!("{kind} is not told: {form}"));
            assert!(of.contains(&format!("<code>{field}</code>")), "{kind} has no {field}");
        }
    }

    #[test]
    fn what_the_page_points_to_is_on_it() {
        let page = page(&document(&routes::all()));
        for target in page.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(page.contains(&format!("id=\"{target}\"")), "{target}");
        }
    }
}
