//! A plot of points and lines over two axes, with intervals, and lines to hold them against. Pure.

use maud::{Markup, html};

use super::frame::{Axis, Frame};
use super::px;
use super::style::Style;

const WIDTH_PX: f64 = 520.0;
const HEIGHT_PX: f64 = 320.0;

/// A measured point.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// across
    pub x: f64,
    /// up; `None` where it was not measured: the line has a gap there
    pub y: Option<f64>,
    /// its interval
    pub interval: Option<(f64, f64)>,
    /// what it is, in words with units: shown under the mouse and read out
    pub said: String,
}

/// Points that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// in the legend
    pub name: String,
    /// its points, in the order of their line
    pub points: Vec<Point>,
    /// its look
    pub style: Style,
    /// instances of its points, where all have as many: the page can leave it out by them
    pub instances: Option<u32>,
}

/// A line that is no measurement: an ideal, a limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Guide {
    /// in the legend
    pub name: String,
    /// from point to point
    pub path: Vec<(f64, f64)>,
}

impl Guide {
    /// A level from one x to another.
    pub fn level(name: impl Into<String>, y: f64, from_x: f64, to_x: f64) -> Guide {
        Guide {
            name: name.into(),
            path: vec![(from_x, y), (to_x, y)],
        }
    }
}

/// A plot.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// names its element: letters, digits and dashes, once on a page
    pub id: String,
    /// what it shows, in a line
    pub title: String,
    /// across
    pub x: Axis,
    /// up
    pub y: Axis,
    /// what was measured
    pub series: Vec<Series>,
    /// what it is held against
    pub guides: Vec<Guide>,
    /// a sentence under it
    pub note: Option<String>,
}

impl Plot {
    /// The plot with its legend under it; a sentence in its place where nothing was measured.
    pub fn draw(&self) -> Markup {
        html! {
            figure id=(self.id) {
                figcaption { (self.title) }
                @if self.is_empty() {
                    p class="missing" { "not measured" }
                } @else {
                    (self.svg())
                    (self.legend())
                }
                @if let Some(note) = &self.note { p class="note" { (note) } }
            }
        }
    }

    fn is_empty(&self) -> bool {
        let measured = |point: &Point| point.y.is_some_and(f64::is_finite);
        !self
            .series
            .iter()
            .any(|series| series.points.iter().any(measured))
    }

    fn svg(&self) -> Markup {
        let frame = Frame::around((WIDTH_PX, HEIGHT_PX), (&self.x, &self.y), &self.values());
        let said = format!(
            "{}. Across: {}. Up: {}.",
            self.title, self.x.title, self.y.title
        );
        html! {
            svg class="plot" viewBox=(format!("0 0 {WIDTH_PX} {HEIGHT_PX}")) role="img" tabindex="0" aria-label=(said) {
                (frame.draw())
                @for (index, guide) in self.guides.iter().enumerate() {
                    path class=(format!("guide g{}", index % 3)) data-series=(guide.name) d=(line(&frame, guide.path.iter().map(|at| Some(*at)))) {}
                }
                @for series in &self.series { (drawn(&frame, series)) }
            }
        }
    }

    fn values(&self) -> Vec<(f64, f64)> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let mut values = Vec::new();
        for point in points {
            let ends = point.interval.map(|(low, high)| [low, high]);
            let ys = point.y.into_iter().chain(ends.into_iter().flatten());
            values.extend(ys.map(|y| (point.x, y)));
        }
        values.extend(
            self.guides
                .iter()
                .flat_map(|guide| guide.path.iter().copied()),
        );
        values
    }

    fn legend(&self) -> Markup {
        html! {
            ul class="legend" {
                @for series in &self.series {
                    li { label { input type="checkbox" checked data-toggles=(series.name); (series.style.swatch()) (series.name) } }
                }
                @for (index, guide) in self.guides.iter().enumerate() {
                    li { label {
                        input type="checkbox" checked data-toggles=(guide.name);
                        svg class="swatch" viewBox="0 0 34 14" width="34" height="14" aria-hidden="true" {
                            path class=(format!("guide g{}", index % 3)) d="M1 7H33" {}
                        }
                        (guide.name)
                    } }
                }
            }
        }
    }
}

fn drawn(frame: &Frame, series: &Series) -> Markup {
    let places = series
        .points
        .iter()
        .map(|point| point.y.map(|y| (point.x, y)));
    let class = series.style.class();
    html! {
        g data-series=(series.name) data-instances=[series.instances] {
            path class=(format!("l {class}")) stroke-dasharray=(series.style.dashes()) d=(line(frame, places)) {}
            @for point in &series.points {
                @if let Some(whisker) = whisker(frame, point) { path class=(format!("w {class}")) d=(whisker) {} }
                @if let Some((x, y)) = point.y.and_then(|y| frame.place(point.x, y)) {
                    (series.style.marker(x, y, &point.said))
                }
            }
        }
    }
}

/// A path through the points that have a place, broken where one has none.
pub(super) fn line(frame: &Frame, points: impl Iterator<Item = Option<(f64, f64)>>) -> String {
    let (mut path, mut pen_down) = (String::new(), false);
    for point in points {
        let place = point.and_then(|(x, y)| frame.place(x, y));
        if let Some((x, y)) = place {
            path += &format!("{}{} {}", if pen_down { 'L' } else { 'M' }, px(x), px(y));
        }
        pen_down = place.is_some();
    }
    path
}

fn whisker(frame: &Frame, point: &Point) -> Option<String> {
    let (low, high) = point.interval?;
    let ((x, bottom), (_, top)) = (frame.place(point.x, low)?, frame.place(point.x, high)?);
    let (left, right) = (px(x - 4.0), px(x + 4.0));
    Some(format!(
        "M{left} {b}H{right}M{x} {b}V{t}M{left} {t}H{right}",
        x = px(x),
        b = px(bottom),
        t = px(top)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(ys: &[Option<f64>]) -> Plot {
        let point = |(x, y): (usize, &Option<f64>)| Point {
            x: x as f64 + 1.0,
            y: *y,
            interval: y.map(|y| (y - 1.0, y + 1.0)),
            said: format!("<b>{x}</b>"),
        };
        Plot {
            id: "p".into(),
            title: "T<script>alert(1)</script>".into(),
            x: Axis::linear("load (requests)"),
            y: Axis::log("TTFT (ms)"),
            series: vec![Series {
                name: "n = 1 \"&<".into(),
                points: ys.iter().enumerate().map(point).collect(),
                style: Style(0),
                instances: None,
            }],
            guides: vec![Guide::level("limit", 9.0, 1.0, 3.0)],
            note: None,
        }
    }

    #[test]
    fn a_point_that_was_not_measured_breaks_the_line_and_is_not_drawn_at_zero() {
        let svg = plot(&[Some(5.0), None, Some(7.0), Some(8.0)])
            .draw()
            .into_string();
        let line = svg
            .split("class=\"l s0\"")
            .nth(1)
            .and_then(|rest| rest.split(" d=\"").nth(1));
        let line = line
            .and_then(|rest| rest.split('"').next())
            .unwrap_or_default();
        assert_eq!(line.matches('M').count(), 2, "{line}");
        assert_eq!(line.matches('L').count(), 1, "{line}");
        assert_eq!(svg.matches("<title>").count(), 3);
    }

    #[test]
    fn what_plans_say_is_no_markup() {
        let svg = plot(&[Some(5.0)]).draw().into_string();
        assert!(!svg.contains("<script") && !svg.contains("<b>"), "{svg}");
        assert!(
            svg.contains("data-series=\"n = 1 &quot;&amp;&lt;\""),
            "{svg}"
        );
    }

    #[test]
    fn a_plot_of_nothing_says_so_and_one_point_is_drawn() {
        assert!(plot(&[None]).draw().into_string().contains("not measured"));
        let one = plot(&[Some(5.0)]).draw().into_string();
        assert!(!one.contains("NaN") && !one.contains("inf"), "{one}");
    }
}
