//! Plots as SVG, made here so that a page needs nobody else: no script, no fonts, no network. Pure.
//!
//! Every text goes through `maud`, which escapes it. Colours come from the page's style sheet by class, so that a plot
//! follows light, dark and paper; a series is told by its marker and its dashes too, never by colour alone.

pub mod frame;
pub mod panels;
pub mod plot;
pub mod rows;
pub mod scale;
pub mod style;

/// A coordinate with one decimal: a tenth of a pixel is finer than any screen, and pages stay small.
pub(crate) fn px(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    // -0 would be written as such.
    format!("{}", rounded + 0.0)
}
