//! Panels one under another over one time axis, so that what happened at the same time stands in one line. Pure.
//!
//! A panel shows one line for each series, or a middle and the band from the lowest to the highest of several sources.

use maud::{Markup, html};

use super::frame::Area;
use super::px;
use super::scale::{Kind, Scale, label};
use super::style::Style;

const WIDTH_PX: f64 = 960.0;
const PANEL_PX: f64 = 104.0;
const GAP_PX: f64 = 30.0;
const LEFT_PX: f64 = 76.0;
const RIGHT_PX: f64 = 944.0;
const TOP_PX: f64 = 22.0;
const UNDER_PX: f64 = 40.0;

/// A time and a value there.
pub type At = (f64, f64);

/// A line of a panel.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// what, for the legend over the panel
    pub name: String,
    /// seconds and values
    pub points: Vec<At>,
    /// lowest and highest of its sources at these seconds; empty for a single source
    pub band: Vec<(f64, f64, f64)>,
    /// its look
    pub style: Style,
    /// dots in place of a line
    pub dots: bool,
}

/// One panel.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// what and its unit
    pub title: String,
    /// how values lie
    pub kind: Kind,
    /// highest value of the axis, where it is known, such as 1 for a share
    pub full: Option<f64>,
    /// its lines
    pub lines: Vec<Line>,
}

/// Panels over one axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Panels {
    /// names its element
    pub id: String,
    /// what it shows
    pub title: String,
    /// ends of the time axis, seconds
    pub span_s: (f64, f64),
    /// the part that counts, seconds; the rest is shaded
    pub counted_s: Option<(f64, f64)>,
    /// from top to bottom
    pub panels: Vec<Panel>,
    /// a sentence under it
    pub note: Option<String>,
}

impl Panels {
    /// All panels in one drawing.
    pub fn draw(&self) -> Markup {
        let height = TOP_PX + self.panels.len() as f64 * (PANEL_PX + GAP_PX) - GAP_PX + UNDER_PX;
        let time = Scale::exact(self.span_s.0, self.span_s.1).onto(LEFT_PX, RIGHT_PX);
        html! {
            figure class="wide" id=(self.id) {
                figcaption { (self.title) }
                div class="scroll" {
                    svg class="plot panels" viewBox=(format!("0 0 {WIDTH_PX} {height}")) role="img" tabindex="0"
                        aria-label=(format!("{}. Across: seconds after the load's start.", self.title))
                        data-t0=(self.span_s.0) data-t1=(self.span_s.1) data-left=(LEFT_PX) data-right=(RIGHT_PX) {
                        @for (index, panel) in self.panels.iter().enumerate() {
                            (panel.draw(&time, area(index), self.counted_s))
                        }
                        (time_axis(&time, height - UNDER_PX))
                    }
                }
                @if let Some(note) = &self.note { p class="note" { (note) } }
            }
        }
    }
}

fn area(index: usize) -> Area {
    let top = TOP_PX + index as f64 * (PANEL_PX + GAP_PX);
    Area {
        left: LEFT_PX,
        right: RIGHT_PX,
        top,
        bottom: top + PANEL_PX,
    }
}

fn time_axis(time: &Scale, bottom: f64) -> Markup {
    let ticks = time.ticks();
    let placed = ticks
        .iter()
        .filter_map(|tick| Some((*tick, time.place(*tick)?)));
    html! {
        @for (tick, x) in placed {
            path class="tick" d=(format!("M{} {bottom}v5", px(x))) {}
            text x=(px(x)) y=(bottom + 17.0) text-anchor="middle" { (label(tick)) }
        }
        text class="title" x=((LEFT_PX + RIGHT_PX) / 2.0) y=(bottom + 34.0) text-anchor="middle" {
            "time after the load's start (s)"
        }
    }
}

impl Panel {
    fn scale(&self, area: Area) -> Scale {
        let points = self.lines.iter().flat_map(|line| &line.points);
        let bands = self.lines.iter().flat_map(|line| &line.band);
        let values = points
            .map(|point| point.1)
            .chain(bands.flat_map(|band| [band.1, band.2]))
            .chain(self.full);
        Scale::over(values, self.kind, true).onto(area.bottom, area.top)
    }

    fn draw(&self, time: &Scale, area: Area, counted_s: Option<(f64, f64)>) -> Markup {
        let y = self.scale(area);
        let (low, high) = y.ends();
        let log = self.kind == Kind::Log;
        html! {
            g class="panel" data-title=(self.title) data-low=(low) data-high=(high) data-log=(log)
                data-top=(area.top) data-bottom=(area.bottom) {
                (left_out(time, area, counted_s))
                @for (tick, place) in few(&y) {
                    path class="grid" d=(format!("M{} {}H{}", area.left, px(place), area.right)) {}
                    text x=(area.left - 6.0) y=(px(place + 4.0)) text-anchor="end" { (label(tick)) }
                }
                path class="axis" d=(format!("M{} {}V{}H{}", area.left, area.top, area.bottom, area.right)) {}
                text class="panel-title" x=(area.left) y=(area.top - 7.0) { (self.title) }
                @if self.lines.iter().all(|line| line.points.is_empty()) {
                    text class="missing" x=((area.left + area.right) / 2.0) y=((area.top + area.bottom) / 2.0) text-anchor="middle" {
                        "not measured"
                    }
                } @else { (self.key(area)) }
                @for line in &self.lines { (line.draw(time, &y)) }
            }
        }
    }

    /// Names of the lines, on the right over the panel, where there are several.
    fn key(&self, area: Area) -> Markup {
        const LETTER_PX: f64 = 6.6;
        let mut right = area.right;
        let mut keys = Vec::new();
        for line in self.lines.iter().rev() {
            right -= line.name.chars().count() as f64 * LETTER_PX + 34.0;
            keys.push((line, right));
        }
        html! {
            @for (line, x) in keys {
                @if line.dots { (line.style.marker(x + 9.0, area.top - 11.0, "")) } @else {
                    path class=(format!("l {}", line.style.class())) stroke-dasharray=(line.style.dashes())
                        d=(format!("M{} {}h20", px(x), area.top - 11.0)) {}
                }
                text x=(px(x + 25.0)) y=(area.top - 7.0) { (line.name) }
            }
        }
    }
}

/// What does not count lies in shade.
fn left_out(time: &Scale, area: Area, counted_s: Option<(f64, f64)>) -> Markup {
    let shade = |from: f64, to: f64| {
        html! {
            @if to > from { rect class="cut" x=(px(from)) y=(area.top) width=(px(to - from)) height=(PANEL_PX) {} }
        }
    };
    html! {
        @if let Some((from_s, to_s)) = counted_s {
            (shade(area.left, time.place(from_s).unwrap_or(area.left).min(area.right)))
            (shade(time.place(to_s).unwrap_or(area.right).max(area.left), area.right))
        }
    }
}

fn few(y: &Scale) -> Vec<(f64, f64)> {
    let placed = |tick| Some((tick, y.place(tick)?));
    y.few_ticks().into_iter().filter_map(placed).collect()
}

impl Line {
    fn draw(&self, time: &Scale, y: &Scale) -> Markup {
        let place = |at_s: f64, value: f64| Some((time.place(at_s)?, y.place(value)?));
        let places: Vec<(f64, f64)> = self
            .points
            .iter()
            .filter_map(|point| place(point.0, point.1))
            .collect();
        let class = self.style.class();
        html! {
            g data-series=(self.name) {
                @if !self.band.is_empty() {
                    path class=(format!("band {class}")) d=(self.band_path(place)) {}
                }
                @if self.dots {
                    path class=(format!("dots {class}")) data-name=(self.name) d=(dots(&places)) {}
                } @else {
                    path class=(format!("l thin {class}")) data-name=(self.name) stroke-dasharray=(self.style.dashes()) d=(path(&places)) {}
                }
            }
        }
    }

    fn band_path(&self, place: impl Fn(f64, f64) -> Option<(f64, f64)>) -> String {
        let upper = self.band.iter().map(|band| (band.0, band.2));
        let lower = self.band.iter().rev().map(|band| (band.0, band.1));
        let around: Vec<(f64, f64)> = upper
            .chain(lower)
            .filter_map(|(at_s, value)| place(at_s, value))
            .collect();
        path(&around) + "Z"
    }
}

fn path(places: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (x, y) in places {
        let pen = if path.is_empty() { 'M' } else { 'L' };
        path += &format!("{pen}{} {}", px(*x), px(*y));
    }
    path
}

/// Lines without length: their round ends are the dots.
fn dots(places: &[(f64, f64)]) -> String {
    places
        .iter()
        .map(|(x, y)| format!("M{} {}h0", px(*x), px(*y)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(lines: Vec<Line>) -> String {
        let panels = Panels {
            id: "t".into(),
            title: "one minute".into(),
            span_s: (0.0, 60.0),
            counted_s: Some((10.0, 50.0)),
            panels: vec![Panel {
                title: "GPU use (%)".into(),
                kind: Kind::Linear,
                full: Some(100.0),
                lines,
            }],
            note: None,
        };
        panels.draw().into_string()
    }

    #[test]
    fn time_lies_on_one_axis_and_what_does_not_count_in_shade() {
        let line = Line {
            name: "</text><script>".into(),
            points: vec![(0.0, 0.0), (60.0, 100.0)],
            band: vec![(0.0, 0.0, 10.0), (60.0, 90.0, 100.0)],
            style: Style(0),
            dots: false,
        };
        let svg = drawn(vec![line]);
        assert!(svg.contains("M76 126L944 22"), "{svg}");
        assert_eq!(svg.matches("class=\"cut\"").count(), 2);
        assert!(!svg.contains("<script"), "{svg}");
    }

    #[test]
    fn a_panel_that_nobody_told_of_says_so() {
        assert!(drawn(vec![]).contains("not measured"));
    }
}
