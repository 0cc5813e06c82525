//! stub
use crate::proxy::core::Shared;
/// stub
pub fn json(_: &Shared) -> serde_json::Value {
    serde_json::json!({})
}
