//! README, Containerfile, scripts and workflow: texts with a few places to fill in, each with a value that cannot mean more than
//! itself where it stands.

use slipway_api::agent::Framework;

use crate::File;
use crate::wanted::{Capability, WantedProject};

const README: &str = include_str!("templates/text/README.md");
const EVALUATE: &str = include_str!("templates/text/evaluate.md");
const CONTAINERFILE: &str = include_str!("templates/text/Containerfile");
const BUILD: &str = include_str!("templates/text/build.sh");
const CI: &str = include_str!("templates/text/ci.sh");
const WORKFLOW: &str = include_str!("templates/text/ci.yaml");
const IGNORED: &str = include_str!("templates/text/gitignore");
/// What means something in Markdown.
const MARKUP: &str = "\\`*_{[]<>#|&~";

pub(crate) fn files(wanted: &WantedProject) -> Vec<File> {
    let evaluate = if wanted.has(Capability::Evaluation) { EVALUATE.replace("{{slug}}", &wanted.slug) } else { String::new() };
    let description = wanted.description.as_deref().map_or_else(String::new, prose);
    // What callers wrote comes last, so that it is not filled in itself.
    let readme = README
        .replace("{{framework}}", built_with(wanted.framework))
        .replace("{{image}}", &wanted.image)
        .replace("{{evaluate}}", &evaluate)
        .replacen("{{description}}", &description, 1)
        .replacen("{{name}}", &prose(&wanted.name), 1);
    let mut files = vec![
        File::plain("README.md", readme),
        File::plain("Containerfile", CONTAINERFILE.replace("{{base_image}}", &wanted.base_image)),
        File::plain(".gitignore", IGNORED),
        File::program("build.sh", BUILD.replace("{{image}}", &wanted.image)),
    ];
    if wanted.has(Capability::Ci) {
        files.push(File::program("ci.sh", CI.replace("{{slug}}", &wanted.slug)));
        files.push(File::plain(".github/workflows/ci.yaml", WORKFLOW));
    }
    files
}

const fn built_with(framework: Framework) -> &'static str {
    match framework {
        Framework::Custom => "without a framework",
        Framework::Langchain => "built with LangChain",
        Framework::Crewai => "built with CrewAI",
        Framework::Autogen => "built with AutoGen",
        Framework::Adk => "built with Google's Agent Development Kit",
    }
}

/// Words of a caller as one line of Markdown without markup.
fn prose(words: &str) -> String {
    let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut prose = String::with_capacity(line.len());
    for letter in line.chars() {
        if MARKUP.contains(letter) {
            prose.push('\\');
        }
        prose.push(letter);
    }
    prose
}
