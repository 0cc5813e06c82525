//! The data port's own small answers: `/health`, `/ping`, `/version`.

use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};

use super::core::Core;
use super::paths::Own;

/// Answers like an engine would, of the balancer itself.
pub fn answer(core: &Core, own: Own) -> Response<Bytes> {
    let stopping = core.shared.draining.load(Relaxed);
    let status = if stopping {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    let body = match own {
        Own::Version => Bytes::from_static(
            concat!("{\"version\":\"evenkeel ", env!("CARGO_PKG_VERSION"), "\"}").as_bytes(),
        ),
        Own::Health | Own::Ping => Bytes::new(),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    if own == Own::Version {
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    response
}
