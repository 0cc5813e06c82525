//! What is around the data of a plot: axes, their titles, ticks and grid. Pure.

use maud::{Markup, html};

use super::px;
use super::scale::{Kind, Scale, label};

/// Width of a figure in a letter, at the size of the labels.
const LETTER_PX: f64 = 6.8;
/// Room for a tick's label under an axis, in letters of it.
const LABEL_ROOM_PX: f64 = 10.0;

/// What an axis shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// what, with its unit
    pub title: String,
    /// how values lie on it
    pub kind: Kind,
    /// it begins at 0
    pub from_zero: bool,
    /// ticks at these values in place of round ones
    pub ticks: Vec<f64>,
}

impl Axis {
    /// Linear, from 0.
    pub fn linear(title: impl Into<String>) -> Axis {
        Axis {
            title: title.into(),
            kind: Kind::Linear,
            from_zero: true,
            ticks: Vec::new(),
        }
    }

    /// Logarithmic.
    pub fn log(title: impl Into<String>) -> Axis {
        Axis {
            kind: Kind::Log,
            from_zero: false,
            ..Axis::linear(title)
        }
    }

    /// The same with ticks at these values.
    pub fn at(mut self, ticks: Vec<f64>) -> Axis {
        self.ticks = ticks;
        self
    }
}

/// The place of the data within a plot, in pixels of its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Area {
    /// left edge
    pub left: f64,
    /// right edge
    pub right: f64,
    /// upper edge
    pub top: f64,
    /// lower edge
    pub bottom: f64,
}

/// Ticks of the two axes, and the area they leave.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// where the data lie
    pub area: Area,
    /// across
    pub x: Scale,
    /// up
    pub y: Scale,
    x_title: String,
    y_title: String,
    x_ticks: Vec<f64>,
    y_ticks: Vec<f64>,
}

impl Frame {
    /// A frame of `width` and `height` around values.
    pub fn around(size: (f64, f64), axes: (&Axis, &Axis), values: &[(f64, f64)]) -> Frame {
        let (width, height) = size;
        let scale = |axis: &Axis, of: fn(&(f64, f64)) -> f64| {
            Scale::over(values.iter().map(of), axis.kind, axis.from_zero)
        };
        let y = scale(axes.1, |value| value.1);
        let y_ticks = if axes.1.ticks.is_empty() {
            y.ticks()
        } else {
            axes.1.ticks.clone()
        };
        let widest = y_ticks
            .iter()
            .map(|tick| label(*tick).len())
            .max()
            .unwrap_or(1);
        let area = Area {
            left: 30.0 + widest as f64 * LETTER_PX,
            right: width - 16.0,
            top: 12.0,
            bottom: height - 46.0,
        };
        let x = scale(axes.0, |value| value.0).onto(area.left, area.right);
        let x_ticks = if axes.0.ticks.is_empty() {
            x.ticks()
        } else {
            x.ticks_at(&axes.0.ticks, apart(&axes.0.ticks))
        };
        Frame {
            y: y.onto(area.bottom, area.top),
            x,
            area,
            x_title: axes.0.title.clone(),
            y_title: axes.1.title.clone(),
            x_ticks,
            y_ticks,
        }
    }

    /// Place of a value; `None` where an axis does not have it.
    pub fn place(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        Some((self.x.place(x)?, self.y.place(y)?))
    }

    /// Grid, ticks and titles, to be drawn under the data.
    pub fn draw(&self) -> Markup {
        let Area {
            left,
            right,
            top,
            bottom,
        } = self.area;
        let middle_y = (top + bottom) / 2.0;
        html! {
            @for (tick, y) in placed(&self.y_ticks, &self.y) {
                path class="grid" d=(format!("M{} {}H{}", px(left), px(y), px(right))) {}
                text x=(px(left - 6.0)) y=(px(y + 4.0)) text-anchor="end" { (label(tick)) }
            }
            @for (tick, x) in placed(&self.x_ticks, &self.x) {
                path class="tick" d=(format!("M{} {}V{}", px(x), px(bottom), px(bottom + 5.0))) {}
                text x=(px(x)) y=(px(bottom + 18.0)) text-anchor="middle" { (label(tick)) }
            }
            path class="axis" d=(format!("M{} {}V{}H{}", px(left), px(top), px(bottom), px(right))) {}
            text class="title" x=(px((left + right) / 2.0)) y=(px(bottom + 38.0)) text-anchor="middle" { (self.x_title) }
            text class="title" text-anchor="middle" transform=(format!("translate(13 {}) rotate(-90)", px(middle_y))) {
                (self.y_title)
            }
        }
    }
}

fn placed<'a>(ticks: &'a [f64], scale: &'a Scale) -> impl Iterator<Item = (f64, f64)> + 'a {
    ticks
        .iter()
        .filter_map(|tick| Some((*tick, scale.place(*tick)?)))
}

fn apart(ticks: &[f64]) -> f64 {
    let widest = ticks.iter().map(|tick| label(*tick).len()).max();
    widest.unwrap_or(1) as f64 * LETTER_PX + LABEL_ROOM_PX
}
