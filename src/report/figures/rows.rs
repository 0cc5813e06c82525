//! Rows of pieces end to end on one axis: where the time of requests went. Pure.

use maud::{Markup, html};

use super::px;
use super::scale::{Kind, Scale, label};

const WIDTH_PX: f64 = 960.0;
const ROW_PX: f64 = 22.0;
const BAR_PX: f64 = 15.0;
const TOP_PX: f64 = 8.0;
const UNDER_PX: f64 = 46.0;
const LETTER_PX: f64 = 6.8;
/// Longest label beside a row, in letters; longer ones are cut and whole under the mouse.
const LABEL_LETTERS: usize = 44;

/// A kind of piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    /// in the legend
    pub name: &'static str,
    /// place of its fill in the style sheet, `f0` to `f9`: colour and hatching
    pub fill: usize,
}

/// A piece of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// what
    pub stage: Stage,
    /// how long, on the axis
    pub length: f64,
}

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// on its left
    pub name: String,
    /// from 0, end to end
    pub pieces: Vec<Piece>,
    /// behind its end
    pub after: String,
}

/// Rows over one axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// names its element
    pub id: String,
    /// what it shows
    pub title: String,
    /// the axis, with its unit in brackets
    pub axis: String,
    /// unit of a length, for what is said of a piece
    pub unit: &'static str,
    /// from top to bottom
    pub rows: Vec<Row>,
    /// a sentence under it
    pub note: Option<String>,
}

impl Rows {
    /// The rows with their legend; a sentence in their place where nothing was measured.
    pub fn draw(&self) -> Markup {
        html! {
            figure class="wide" id=(self.id) {
                figcaption { (self.title) }
                @if self.rows.iter().all(|row| row.pieces.is_empty()) {
                    p class="missing" { "not measured" }
                } @else {
                    div class="scroll" { (self.svg()) }
                    ul class="legend" {
                        @for stage in self.stages() {
                            li { svg class="swatch" viewBox="0 0 22 14" width="22" height="14" aria-hidden="true" {
                                rect class=(format!("b f{}", stage.fill)) x="1" y="1" width="20" height="12" {}
                                (hatch(stage, 1.0, 1.0, 20.0, 12.0))
                            } (stage.name) }
                        }
                    }
                }
                @if let Some(note) = &self.note { p class="note" { (note) } }
            }
        }
    }

    /// Stages that occur with a length, in the order in which they come.
    fn stages(&self) -> Vec<Stage> {
        let mut stages: Vec<Stage> = Vec::new();
        for piece in self.rows.iter().flat_map(|row| &row.pieces) {
            if piece.length > 0.0 && !stages.contains(&piece.stage) {
                stages.push(piece.stage);
            }
        }
        stages.sort_by_key(|stage| stage.fill);
        stages
    }

    fn svg(&self) -> Markup {
        let longest = |of: fn(&Row) -> usize| self.rows.iter().map(of).max().unwrap_or(0) as f64;
        let left = 14.0 + longest(|row| row.name.chars().count().min(LABEL_LETTERS)) * LETTER_PX;
        let right = WIDTH_PX - 14.0 - longest(|row| row.after.chars().count()) * LETTER_PX;
        let bottom = TOP_PX + self.rows.len() as f64 * ROW_PX;
        let sums = self.rows.iter().map(Row::length);
        let x = Scale::over(sums, Kind::Linear, true).onto(left, right);
        let ticks: Vec<(f64, f64)> = x
            .ticks()
            .into_iter()
            .filter_map(|tick| Some((tick, x.place(tick)?)))
            .collect();
        html! {
            svg class="plot" viewBox=(format!("0 0 {WIDTH_PX} {}", bottom + UNDER_PX)) role="img" tabindex="0"
                aria-label=(format!("{}. Across: {}.", self.title, self.axis)) {
                @for (tick, place) in &ticks {
                    path class="grid" d=(format!("M{} {TOP_PX}V{bottom}", px(*place))) {}
                    text x=(px(*place)) y=(bottom + 16.0) text-anchor="middle" { (label(*tick)) }
                }
                text class="title" x=(px((left + right) / 2.0)) y=(bottom + 36.0) text-anchor="middle" { (self.axis) }
                @for (index, row) in self.rows.iter().enumerate() {
                    (self.row(row, &x, TOP_PX + index as f64 * ROW_PX))
                }
                path class="axis" d=(format!("M{} {TOP_PX}V{bottom}", px(left))) {}
            }
        }
    }

    fn row(&self, row: &Row, x: &Scale, top: f64) -> Markup {
        let y = top + (ROW_PX - BAR_PX) / 2.0;
        let text_y = px(y + 12.0);
        let place = |value: f64| x.place(value).unwrap_or_default();
        let mut from = 0.0;
        let mut pieces = Vec::new();
        for piece in row.pieces.iter().filter(|piece| piece.length > 0.0) {
            pieces.push((piece, place(from), place(from + piece.length)));
            from += piece.length;
        }
        html! {
            text x=(px(place(0.0) - 6.0)) y=(text_y) text-anchor="end" { (cut(&row.name)) title { (row.name) } }
            @for (piece, left, right) in pieces {
                g class="m" data-x=(px((left + right) / 2.0)) data-y=(px(y + BAR_PX / 2.0)) {
                    title { (row.name) ": " (piece.stage.name) " " (long(piece.length)) " " (self.unit) }
                    rect class=(format!("b f{}", piece.stage.fill)) x=(px(left)) y=(px(y)) width=(px((right - left).max(0.3))) height=(BAR_PX) {}
                    (hatch(piece.stage, left, y, right - left, BAR_PX))
                }
            }
            text x=(px(place(from) + 6.0)) y=(text_y) { (row.after) }
        }
    }
}

impl Row {
    fn length(&self) -> f64 {
        self.pieces.iter().map(|piece| piece.length).sum()
    }
}

/// Strokes over every second fill: neighbours differ where colours do not.
fn hatch(stage: Stage, x: f64, y: f64, width: f64, height: f64) -> Markup {
    const STEP_PX: f64 = 5.0;
    let mut path = String::new();
    if stage.fill % 2 == 1 && width > STEP_PX {
        let mut at = STEP_PX / 2.0;
        while at < width {
            path += &format!("M{} {}v{}", px(x + at), px(y), px(height));
            at += STEP_PX;
        }
    }
    html! { @if !path.is_empty() { path class="hatch" d=(path) {} } }
}

fn cut(name: &str) -> String {
    if name.chars().count() <= LABEL_LETTERS {
        return name.to_owned();
    }
    let head: String = name.chars().take(LABEL_LETTERS - 1).collect();
    head + "…"
}

fn long(value: f64) -> String {
    if value < 1.0 {
        format!("{value:.3}")
    } else {
        crate::report::terminal::number(Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: Stage = Stage {
        name: "queue",
        fill: 1,
    };
    const ENGINE: Stage = Stage {
        name: "server TTFT",
        fill: 8,
    };

    fn rows(rows: Vec<Row>) -> String {
        let rows = Rows {
            id: "w".into(),
            title: "t".into(),
            axis: "time (ms)".into(),
            unit: "ms",
            rows,
            note: None,
        };
        rows.draw().into_string()
    }

    #[test]
    fn pieces_follow_one_another_and_nothing_is_drawn_for_nothing() {
        let pieces = vec![
            Piece {
                stage: QUEUE,
                length: 0.0,
            },
            Piece {
                stage: ENGINE,
                length: 40.0,
            },
            Piece {
                stage: QUEUE,
                length: 60.0,
            },
        ];
        let svg = rows(vec![Row {
            name: "<i>a".into(),
            pieces,
            after: "ok".into(),
        }]);
        assert_eq!(svg.matches("class=\"m\"").count(), 2);
        assert!(
            svg.contains("queue 60.0 ms") && !svg.contains("<i>"),
            "{svg}"
        );
    }

    #[test]
    fn rows_without_pieces_are_not_measured() {
        assert!(rows(vec![]).contains("not measured"));
    }
}
