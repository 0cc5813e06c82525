//! `evenkeel sweep`: a plan of many points, run one after the other, kept in files as a study.

pub mod check;
pub mod expand;
pub mod plan;
pub mod presets;
pub mod raw;
pub mod variants;
pub mod warnings;

#[cfg(test)]
mod tests;
