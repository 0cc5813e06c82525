//! Which model a server has, for a command line that names none.

use std::time::Duration;

use super::BenchError;
use super::target::Target;
use crate::load::fetch::Ask;

const LIMIT: Duration = Duration::from_secs(10);

/// The first model that `GET /v1/models` lists.
pub fn first(target: &Target, headers: &str) -> Result<String, BenchError> {
    let failed = |why: String| {
        BenchError::Options(format!(
            "no --model was given, and {} does not say which it has ({why}): give --model NAME",
            target.authority
        ))
    };
    let ask = Ask {
        authority: target.authority.clone(),
        path: format!("{}/v1/models", target.base_path),
        headers: headers.to_owned(),
    };
    let answer = ask
        .get(target.addr, LIMIT)
        .map_err(|error| failed(error.to_string()))?;
    if answer.status != 200 {
        let status = answer.status;
        return Err(failed(format!("/v1/models is answered with {status}")));
    }
    let listed: serde_json::Value = serde_json::from_slice(&answer.body)
        .map_err(|_| failed("its /v1/models is no JSON".into()))?;
    match listed["data"][0]["id"].as_str() {
        Some(id) => Ok(id.to_owned()),
        None => Err(failed("its /v1/models lists none".into())),
    }
}
