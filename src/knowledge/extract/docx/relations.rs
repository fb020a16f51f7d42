//! Which parts a part refers to, and as what.

use super::package::Package;
use super::xml::{Node, Xml};
use crate::extract::Unreadable;

const RELATIONS_MAX: usize = 20_000;

#[derive(Default)]
pub(super) struct Relations {
    all: Vec<Relation>,
}

struct Relation {
    id: String,
    /// The last step of the type's URI.
    kind: String,
    part: String,
}

impl Relations {
    /// Of the whole package, if the part is empty.
    pub(super) fn of(package: &mut Package, part: &str) -> Result<Self, Unreadable> {
        let (folder, name) = part.rsplit_once('/').unwrap_or(("", part));
        let file = if folder.is_empty() { format!("_rels/{name}.rels") } else { format!("{folder}/_rels/{name}.rels") };
        let mut relations = Self::default();
        let Some(stream) = package.part(&file)? else { return Ok(relations) };
        let mut xml = Xml::new(stream, &file);
        while let Some(node) = xml.next()? {
            let Node::Start(element) = node else { continue };
            let external = element.attribute("TargetMode").is_some_and(|mode| mode == "External");
            if element.name() != "Relationship" || external || relations.all.len() >= RELATIONS_MAX {
                continue;
            }
            let [Some(id), Some(kind), Some(target)] = ["Id", "Type", "Target"].map(|name| element.attribute(name)) else { continue };
            let kind = kind.rsplit('/').next().unwrap_or_default().to_owned();
            relations.all.push(Relation { id, kind, part: resolve(folder, &target) });
        }
        Ok(relations)
    }

    /// The first part of a kind.
    pub(super) fn part(&self, kind: &str) -> Option<&str> {
        self.all.iter().find(|relation| relation.kind == kind).map(|relation| relation.part.as_str())
    }

    pub(super) fn images(&self) -> impl Iterator<Item = (&str, &str)> {
        self.all.iter().filter(|relation| relation.kind == "image").map(|relation| (relation.id.as_str(), relation.part.as_str()))
    }
}

fn resolve(folder: &str, target: &str) -> String {
    let (folder, target) = match target.strip_prefix('/') {
        Some(target) => ("", target),
        None => (folder, target),
    };
    let mut steps: Vec<&str> = folder.split('/').filter(|step| !step.is_empty()).collect();
    for step in target.split('/') {
        match step {
            "" | "." => {}
            ".." => drop(steps.pop()),
            step => steps.push(step),
        }
    }
    steps.join("/")
}

#[cfg(test)]
mod tests {
    use super::resolve;

    #[test]
    fn targets_are_resolved_within_the_package() {
        for (folder, target, expected) in [
            ("word", "styles.xml", "word/styles.xml"),
            ("word", "/word/a.xml", "word/a.xml"),
            ("word", "../media/a.png", "media/a.png"),
            ("", "word/document.xml", "word/document.xml"),
            ("", "../../a", "a"),
        ] {
            assert_eq!(resolve(folder, target), expected);
        }
    }
}
