//! The parts of a section as HTML. Pure.

use maud::{Markup, html};

use crate::report::document::table::{Cell, Column, Row, Table};
use crate::report::document::{Choice, Part};

/// Words longer than this are broken into lines.
const LONG_BYTES: usize = 32;

/// Parts one after another; plots that are neighbours stand side by side where there is room.
pub(super) fn draw(parts: &[Part]) -> Markup {
    let is_plot = |part: &Part| matches!(part, Part::Plot(_));
    html! {
        @for group in parts.chunk_by(|one, next| is_plot(one) && is_plot(next)) {
            @if group.iter().all(is_plot) {
                div class="plots" { @for part in group { (one(part)) } }
            } @else { @for part in group { (one(part)) } }
        }
    }
}

fn one(part: &Part) -> Markup {
    match part {
        Part::Text(text) => html! { p { (text) } },
        Part::Heading(text) => html! { h3 { (text) } },
        Part::List(lines) => html! { ul { @for line in lines { li { (line) } } } },
        Part::Table(shown) => table(shown),
        Part::Folded(folded) => html! {
            details { summary { (folded.title) } (table(folded)) }
        },
        Part::Plot(plot) => plot.draw(),
        Part::Panels(panels) => panels.draw(),
        Part::Rows(rows) => rows.draw(),
        Part::Choice(several) => choice(several),
        Part::Verbatim(text) => html! { pre { (text) } },
    }
}

fn table(table: &Table) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label=(table.title) {
            table id=(format!("t-{}", table.id)) data-table=(table.id) {
                caption { (table.title) }
                thead { tr {
                    @for column in &table.columns { (heading(column)) }
                } }
                tbody {
                    @for row in &table.rows { (line(&table.columns, row)) }
                    @if table.rows.is_empty() { tr class="none" { td colspan=(table.columns.len()) class="missing" { "not measured" } } }
                }
            }
        }
        @if let Some(note) = &table.note { p class="note" { (note) } }
    }
}

fn heading(column: &Column) -> Markup {
    html! {
        th scope="col" data-key=(column.key) data-times=(column.unit.times) title=(column.definition) {
            (column.name)
            @if !column.unit.name.is_empty() { " " span class="unit" { (column.unit.name) } }
        }
    }
}

fn line(columns: &[Column], row: &Row) -> Markup {
    html! {
        tr data-instances=[row.instances] {
            @for (index, (cell, column)) in row.cells.iter().zip(columns).enumerate() {
                @let shown = cell.shown(column.unit);
                @if index == 0 {
                    th scope="row" {
                        @if let Some(link) = &row.link { a href=(format!("#{link}")) { (shown) } } @else { (shown) }
                    }
                } @else { (value(cell, &shown)) }
            }
        }
    }
}

fn value(cell: &Cell, shown: &str) -> Markup {
    match cell {
        Cell::Missing => html! { td class="missing" { (shown) } },
        Cell::Number(value) => html! { td class="number" data-value=(value) { (shown) } },
        Cell::Count(value) => html! { td class="number" data-value=(value) { (shown) } },
        Cell::Text(text) => {
            html! { td class=[(text.len() > LONG_BYTES).then_some("words")] { (shown) } }
        }
    }
}

fn choice(choice: &Choice) -> Markup {
    html! {
        div class="choice" id=(choice.id) {
            label class="chooser" { (choice.label) " "
                select { @for option in &choice.options { option value=(option.id) { (option.name) } } }
            }
            @for (index, option) in choice.options.iter().enumerate() {
                details class="option" id=(option.id) open[index == 0] {
                    summary { (option.name) }
                    (draw(&option.parts))
                }
            }
        }
    }
}
