//! The live path.

pub mod multipart;
pub mod paths;
pub mod skim;
pub mod usage_ask;
