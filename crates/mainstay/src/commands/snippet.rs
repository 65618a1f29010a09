//! Mistakes of a configuration file on a terminal: the line, what is marked in it, and the remedy.

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use config::Diagnostic;
use config::diagnostic::Severity;

/// The mistakes as a terminal shows them, an empty line between two; `has_colors` adds colours.
pub(crate) fn render(found: &[Diagnostic], has_colors: bool) -> String {
    let renderer = if has_colors { Renderer::styled() } else { Renderer::plain() };
    let renderer = renderer.decor_style(DecorStyle::Ascii);
    found.iter().map(|diagnostic| render_one(diagnostic, &renderer)).collect::<Vec<_>>().join("\n\n")
}

fn render_one(found: &Diagnostic, renderer: &Renderer) -> String {
    let level = match found.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mark = AnnotationKind::Primary.span(found.marked_bytes.clone());
    let snippet = Snippet::source(found.excerpt.as_str()).line_start(found.line).path(found.file.as_str());
    let title = format!("{}: {}", found.subject, found.problem);
    let report = [level
        .primary_title(title.as_str())
        .element(snippet.annotation(mark))
        .element(Level::HELP.message(found.remedy.as_str()))];
    renderer.render(&report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_shown_with_its_line_its_mark_and_its_remedy() {
        let found = Diagnostic {
            severity: Severity::Error,
            file: "gateway.toml".to_owned(),
            line: 12,
            column: 8,
            subject: "node.id".to_owned(),
            problem: "300 is too large".to_owned(),
            remedy: "give a number from 0 to 254".to_owned(),
            excerpt: "  id = 300  # the first".to_owned(),
            marked_bytes: 7..10,
        };
        let expected = "\
error: node.id: 300 is too large
  --> gateway.toml:12:8
   |
12 |   id = 300  # the first
   |        ^^^
   |
   = help: give a number from 0 to 254";
        assert_eq!(render(&[found], false), expected);
    }
}
