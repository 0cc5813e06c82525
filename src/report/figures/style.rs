//! How a series is told from the others: colour, marker and dashes together. Pure.
//!
//! The colours are those of Okabe and Ito (2008), which people with any kind of colour blindness tell apart; the style
//! sheet has them as `--s0` to `--s7`, darker on white where a line would be too pale.

use maud::{Markup, html};

use super::px;

/// Styles that are different from one another; a ninth series looks as the first.
pub const STYLES: usize = 8;

const DASHES: [&str; STYLES] = ["", "7 3", "2 3", "9 3 2 3", "5 5", "1 3", "12 4", "6 2 2 2"];

/// Look of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style(pub usize);

impl Style {
    /// Class of its strokes and markers.
    pub fn class(self) -> String {
        format!("s{}", self.0 % STYLES)
    }

    /// `stroke-dasharray`; empty for a line without gaps.
    pub fn dashes(self) -> &'static str {
        DASHES[self.0 % STYLES]
    }

    /// Its marker at a place; `said` is read out and shown where the mouse is.
    pub fn marker(self, x: f64, y: f64, said: &str) -> Markup {
        let path = match self.0 % STYLES {
            0 => circle(x, y),
            1 => shape(x, y, &[(-4.0, -4.0), (4.0, -4.0), (4.0, 4.0), (-4.0, 4.0)]),
            2 => shape(x, y, &[(0.0, -5.0), (5.0, 4.0), (-5.0, 4.0)]),
            3 => shape(x, y, &[(0.0, -5.5), (5.5, 0.0), (0.0, 5.5), (-5.5, 0.0)]),
            4 => shape(x, y, &[(0.0, 5.0), (5.0, -4.0), (-5.0, -4.0)]),
            5 => shape(x, y, &[(-5.0, -2.0), (5.0, -2.0), (5.0, 2.0), (-5.0, 2.0)]),
            6 => shape(x, y, &[(-2.0, -5.0), (2.0, -5.0), (2.0, 5.0), (-2.0, 5.0)]),
            _ => shape(x, y, &[(-5.0, -5.0), (5.0, 5.0), (-5.0, 5.0), (5.0, -5.0)]),
        };
        html! {
            path class=(format!("m {}", self.class())) d=(path) data-x=(px(x)) data-y=(px(y)) {
                @if !said.is_empty() { title { (said) } }
            }
        }
    }

    /// A piece of its line with its marker, for a legend.
    pub fn swatch(self) -> Markup {
        html! {
            svg class="swatch" viewBox="0 0 34 14" width="34" height="14" aria-hidden="true" {
                path class=(format!("l {}", self.class())) d="M1 7H33" stroke-dasharray=(self.dashes()) {}
                (self.marker(17.0, 7.0, ""))
            }
        }
    }
}

fn circle(x: f64, y: f64) -> String {
    format!("M{} {}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z", px(x - 4.0), px(y))
}

fn shape(x: f64, y: f64, corners: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (dx, dy) in corners {
        let pen = if path.is_empty() { 'M' } else { 'L' };
        path += &format!("{pen}{} {}", px(x + dx), px(y + dy));
    }
    path + "Z"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_differ_in_more_than_colour() {
        let shown = |style: Style| {
            let marker = style.marker(0.0, 0.0, "").into_string();
            (marker.replace(&style.class(), ""), style.dashes())
        };
        for first in 0..STYLES {
            for second in first + 1..STYLES {
                let (one, other) = (shown(Style(first)), shown(Style(second)));
                assert!(one.0 != other.0 && one.1 != other.1, "{first} {second}");
            }
        }
    }
}
