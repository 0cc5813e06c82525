//! The first screen: the verdict, the figures that carry it, and what must be known before either is believed. Pure.

use maud::{Markup, html};

use crate::report::document::table::NOT_MEASURED;
use crate::report::document::{Document, Head, Headline, Judgement, Origin};

pub(super) fn draw(document: &Document) -> Markup {
    html! {
        header {
            p class="kind" { "Evenkeel report" }
            h1 { (document.title) }
            @for head in &document.heads { (study(head)) }
            @if !document.warnings.is_empty() {
                div class="warnings" role="note" {
                    strong { "Before you believe it" }
                    ul { @for warning in &document.warnings { li { (warning) } } }
                }
            }
            p class="made-from" {
                @for origin in &document.made_from { (made_from(origin)) " " }
            }
        }
    }
}

fn study(head: &Head) -> Markup {
    html! {
        div class="verdict" {
            @if let Some(study) = &head.study { h2 { (study) } }
            p class="sentence" { (head.sentence) }
            @if let Some(next) = &head.next { p class="next" { strong { "Next: " } (next) } }
            div class="headlines" { @for figure in &head.figures { (headline(figure)) } }
        }
    }
}

fn headline(figure: &Headline) -> Markup {
    let class = match figure.judgement {
        Some(Judgement::Good) => "headline good",
        Some(Judgement::Acceptable) => "headline acceptable",
        Some(Judgement::Bad) => "headline bad",
        None => "headline",
    };
    html! {
        div class=(class) {
            p class="name" { (figure.name) }
            @if figure.value.is_some() {
                p class="value" data-value=[figure.value] {
                    @if let Some(judgement) = figure.judgement { span class="sign" aria-hidden="true" { (judgement.sign()) } " " }
                    (figure.shown)
                }
            } @else { p class="value missing" { (NOT_MEASURED) } }
            p class="meaning" { (figure.meaning) }
        }
    }
}

fn made_from(origin: &Origin) -> String {
    let left_out = match origin.unfinished.len() {
        0 => String::new(),
        count => format!(", {count} unfinished left out"),
    };
    format!(
        "Made from {} points of “{}” ({}), begun {} with Evenkeel {}{left_out}.",
        origin.points, origin.name, origin.folder, origin.started, origin.version
    )
}
