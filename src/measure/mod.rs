//! Everything that turns bytes and stamps into figures.

pub mod access_log;
pub mod answer;
pub mod chunk_line;
pub mod chunk_log;
pub mod clock;
pub mod figures;
pub mod gap_figures;
pub mod gzip;
pub mod histograms;
pub mod meter;
pub mod outcome;
pub mod prometheus;
pub mod recent;
pub mod record;
pub mod record_files;
pub mod skew;
pub mod speed;
pub mod spill;
pub mod sse;
pub mod summary;
pub mod utc;
pub mod windows;
pub mod withhold;
pub mod writer;

#[cfg(test)]
mod tests;
