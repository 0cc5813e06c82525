//! A document as one HTML page that needs nothing else: its plots, style and script are in it, and its policy forbids it
//! to load anything. Pure.
//!
//! Tables and plots are complete without the script; that adds values under the mouse and the arrow keys, switches for
//! series and instance counts, and one point in place of all.

mod head;
mod parts;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::document::Document;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
/// Nothing is loaded from anywhere, whatever a name in a plan says.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// The whole page.
pub fn page(document: &Document) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Evenkeel report: " (document.title) }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                (head::draw(document))
                (contents(document))
                main {
                    @for section in &document.sections {
                        section id=(section.id) aria-labelledby=(format!("{}-title", section.id)) {
                            h2 id=(format!("{}-title", section.id)) { (section.title) }
                            (parts::draw(&section.parts))
                        }
                    }
                    (definitions(document))
                }
                div id="tip" role="status" aria-live="polite" hidden {}
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

fn contents(document: &Document) -> Markup {
    html! {
        nav aria-label="Contents" {
            @for section in &document.sections { a href=(format!("#{}", section.id)) { (section.short) } }
            a href="#definitions" { "Definitions" }
            @if document.instances.len() > 1 {
                fieldset class="filter" {
                    legend { "instances shown" }
                    @for count in &document.instances {
                        label { input type="checkbox" checked data-instances=(count); (count) }
                    }
                }
            }
        }
    }
}

fn definitions(document: &Document) -> Markup {
    html! {
        section id="definitions" aria-labelledby="definitions-title" {
            h2 id="definitions-title" { "Definitions" }
            dl {
                @for (word, meaning) in &document.definitions {
                    dt { (word) }
                    dd { (meaning) }
                }
            }
        }
    }
}
