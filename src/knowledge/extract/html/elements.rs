//! What is known of the elements of HTML: which have no text for a reader, which begin a block, which are navigation.

use super::tokens::Tag;

/// Without text for a reader.
pub(super) const DROPPED: [&str; 24] = [
    "script",
    "style",
    "noscript",
    "template",
    "svg",
    "iframe",
    "object",
    "canvas",
    "select",
    "textarea",
    "button",
    "datalist",
    "audio",
    "video",
    "title",
    "annotation",
    "rt",
    "rp",
    "noframes",
    "noembed",
    "applet",
    "map",
    "meter",
    "progress",
];
pub(super) const VOID: [&str; 14] =
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"];
pub(super) const BLOCKS: [&str; 38] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "caption",
    "center",
    "dd",
    "details",
    "dir",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "header",
    "hr",
    "html",
    "legend",
    "li",
    "main",
    "menu",
    "nav",
    "ol",
    "optgroup",
    "p",
    "pre",
    "section",
    "summary",
    "table",
    "tbody",
    "tfoot",
    "thead",
    "tr",
    "ul",
];
/// Elements whose blocks belong together.
pub(super) const CONTAINERS: [&str; 18] = [
    "div", "section", "ul", "ol", "dl", "table", "td", "th", "form", "main", "article", "nav", "aside", "header", "footer", "body",
    "center", "menu",
];
const BOILERPLATE: [&str; 3] = ["nav", "aside", "footer"];
const BOILERPLATE_ROLES: [&str; 7] = ["navigation", "banner", "contentinfo", "complementary", "search", "menu", "menubar"];
/// Whole names of classes, and ids, that pages give to what is not content.
const BOILERPLATE_NAMES: [&str; 30] = [
    "ad",
    "ads",
    "advertisement",
    "breadcrumb",
    "breadcrumbs",
    "cookie-banner",
    "cookie-consent",
    "cookie-notice",
    "footer",
    "headerlink",
    "menu",
    "nav",
    "navbar",
    "navfooter",
    "navheader",
    "navigation",
    "pager",
    "pagination",
    "quickview",
    "related",
    "share",
    "share-buttons",
    "sharing",
    "sidebar",
    "site-footer",
    "skip-link",
    "skiplink",
    "social-share",
    "sphinxsidebar",
    "topnav",
];

pub(super) fn is_hidden(tag: &Tag) -> bool {
    let style = tag.attribute("style").unwrap_or_default();
    let is_unseen = style.contains("none") || style.contains("hidden");
    let style: String = if is_unseen { style.split_whitespace().collect::<String>().to_ascii_lowercase() } else { String::new() };
    tag.attribute("hidden").is_some()
        || tag.attribute("aria-hidden") == Some("true")
        || style.contains("display:none")
        || style.contains("visibility:hidden")
        || tag.name.is(&["dialog"]) && tag.attribute("open").is_none()
        || tag.name.is(&["a"]) && tag.attribute("class").is_some_and(|class| class.split_whitespace().any(|class| class == "headerlink"))
}

pub(super) fn is_boilerplate(tag: &Tag, role: &str, is_in_section: bool) -> bool {
    if tag.name.is(&["html", "body", "article"]) {
        return false;
    }
    let names = [tag.attribute("class"), tag.attribute("id")];
    let is_named = |name: &str| BOILERPLATE_NAMES.iter().any(|known| known.eq_ignore_ascii_case(name));
    tag.name.is(&BOILERPLATE)
        || BOILERPLATE_ROLES.contains(&role)
        || tag.name.is(&["header"]) && !is_in_section
        || names.into_iter().flatten().flat_map(str::split_whitespace).any(is_named)
}
