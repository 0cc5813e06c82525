//! The story of a request, top to bottom: listen has accepted it, `connection` hands it here.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Version, header};
use hyper::body::Incoming;

use super::attempt::{self, Answered};
use super::client_io::ClientSide;
use super::core::Core;
use super::finish::OpenExchange;
use super::generation::Generation;
use super::keys::Entry;
use super::paths::PathKind;
use super::receive::{self, Received, bounded};
use super::refusal::Refusal;
use super::relay::{Relay, Source};
use super::reply::Reply;
use super::response_ids::{IdSniffer, Place};
use super::{headers, models, own, route};
use crate::config::checked::Config;
use crate::measure::chunk_log::ChunkLog;
use crate::measure::clock::{ms_between, now_ns};
use crate::measure::meter::{Meter, MeterOptions};
use crate::measure::withhold::UsageFilter;
use evenkeel_policies::shape::Api;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const INSTANCE: HeaderName = HeaderName::from_static("x-evenkeel-instance");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const REQUEST_ID_BYTES_MAX: usize = 128;

/// From request to reply; everything that can happen to a request is below.
pub async fn serve(
    core: Arc<Core>,
    side: Arc<ClientSide>,
    request: Request<Incoming>,
) -> Response<Reply> {
    let client = (request.version() < Version::HTTP_2).then_some(side);
    let generation = core.shared.generation();
    let (mut parts, body) = request.into_parts();
    let id = keep_or_make_id(&mut parts.headers);
    let kind = match receive::classify(&generation.config, &parts) {
        Ok(PathKind::Own(own)) => return own_reply(client, own::answer(&core, own)),
        kind => kind,
    };
    let Entry { key, place } = generation.enter(&parts.headers);
    let api = kind.as_ref().map_or(Api::Other, receive::api);
    let entered = place.and_then(|place| Ok((kind?, place)));
    if let Ok((PathKind::Models, _place)) = &entered {
        return own_reply(client, models::merged(&generation, &parts, None).await);
    }
    if let Ok((PathKind::ModelById(id), _place)) = &entered {
        return own_reply(client, models::merged(&generation, &parts, Some(id)).await);
    }
    let path = bounded(parts.uri.path(), 128);
    let mut open = OpenExchange::begin(&core, client, id.clone(), path, api);
    open.record.key = key;
    let answered = match entered {
        // boxed, so that a stream that lasts does not keep the room that getting its head took
        Ok((kind, place)) => {
            open.key_place = Some(place);
            Box::pin(answer(&core, &generation, &mut open, &kind, parts, body)).await
        }
        Err(refusal) => {
            receive::read_away(&parts, body);
            Err(refusal)
        }
    };
    let mut response = match answered {
        Ok((answered, received)) => relay(&core, &generation, open, answered, received),
        Err(refusal) => refuse(open, &refusal),
    };
    if generation.config.server.response_headers.request_id {
        set(response.headers_mut(), REQUEST_ID, &id);
    }
    response
}

/// A request that came when the server had begun to stop.
pub fn turn_away(
    core: &Arc<Core>,
    side: Arc<ClientSide>,
    request: Request<Incoming>,
) -> Response<Reply> {
    let client = (request.version() < Version::HTTP_2).then_some(side);
    let (mut parts, body) = request.into_parts();
    let id = keep_or_make_id(&mut parts.headers);
    let kind = receive::classify(&core.shared.current.load().config, &parts);
    if let Ok(PathKind::Own(own)) = kind {
        return own_reply(client, own::answer(core, own));
    }
    let api = kind.as_ref().map_or(Api::Other, receive::api);
    let path = bounded(parts.uri.path(), 128);
    let open = OpenExchange::begin(core, client, id, path, api);
    receive::read_away(&parts, body);
    refuse(open, &Refusal::Draining)
}

/// Receive, route, send: until an instance has answered with a head.
async fn answer(
    core: &Core,
    generation: &Generation,
    open: &mut OpenExchange,
    kind: &PathKind,
    parts: Parts,
    body: Incoming,
) -> Result<(Answered, Received), Refusal> {
    let (config, api) = (&generation.config, open.record.api);
    let stored = stored_place(core, generation, kind)?;
    let mut received = receive::receive(config, &generation.budget, &parts, api, body).await?;
    let last_read = open.client().and_then(|client| client.last_read_ns());
    open.record.stamps.request_last_ns = Some(last_read.unwrap_or_else(now_ns));
    open.record.request_bytes = received.body_bytes;
    let route = route::route(
        core,
        generation,
        open,
        api,
        &parts.headers,
        &received,
        stored,
    )?;
    let answered = attempt::answer(core, config, open, &route, &parts, &mut received).await?;
    received.release();
    open.answering();
    Ok((answered, received))
}

fn stored_place(
    core: &Core,
    generation: &Generation,
    kind: &PathKind,
) -> Result<Option<Place>, Refusal> {
    let PathKind::ResponseById(id) = kind else {
        return Ok(None);
    };
    let place = core.shared.response_ids.place(id);
    match place.filter(|place| route::is_there(generation, *place)) {
        Some(place) => Ok(Some(place)),
        None => Err(Refusal::UnknownResponse(bounded(id, 128))),
    }
}

/// The head goes to the client now; its body follows as it comes.
fn relay(
    core: &Core,
    generation: &Generation,
    mut open: OpenExchange,
    answered: Answered,
    received: Received,
) -> Response<Reply> {
    let config = &generation.config;
    let mut head = answered.head;
    let api = open.record.api;
    open.record.status = Some(head.status.as_u16());
    let value = |name| head.headers.get(name).map(HeaderValue::as_bytes);
    let meter = Meter::new(
        api,
        head.status.as_u16(),
        value(header::CONTENT_TYPE),
        value(header::CONTENT_ENCODING),
        &MeterOptions {
            scan_cap_bytes: config.measure.scan_cap_bytes,
            enabled: config.measure.enabled,
        },
    );
    open.meter = Some(meter.with_log(chunk_log(core, config)));
    let filter = received.usage_withheld.then(UsageFilter::new);
    headers::strip_hop_by_hop(&mut head.headers);
    if filter.is_some() {
        head.headers.remove(header::CONTENT_LENGTH);
    }
    added_headers(config, &open, &mut head.headers);
    let place = open.place();
    let ids = (api == Api::Responses)
        .then(|| place.map(|place| IdSniffer::new(core.shared.response_ids.clone(), place)));
    let source = Source {
        body: answered.body,
        pool: answered.pool,
        filter,
        ids: ids.flatten(),
        limits: config.timeouts.clone(),
    };
    let mut response = Response::new(Reply::relay(Relay::new(open, source)));
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    response
}

/// A log, where it is written or read by what is written.
fn chunk_log(core: &Core, config: &Config) -> Option<ChunkLog> {
    let cap_bytes = config.measure.chunks_cap_bytes;
    let records = core.shared.records.as_ref();
    records.map(|records| records.chunk_log(cap_bytes))
}

fn added_headers(config: &Config, open: &OpenExchange, headers: &mut HeaderMap) {
    let added = config.server.response_headers;
    if let (true, Some(instance)) = (added.instance, &open.record.instance) {
        set(headers, INSTANCE, instance);
    }
    let stamps = &open.record.stamps;
    if let (true, Some(last), Some(chosen), Some(head)) = (
        added.server_timing,
        stamps.request_last_ns,
        stamps.chosen_ns,
        stamps.head_ns,
    ) {
        let queue = stamps.queue_ns as f64 / 1e6;
        let (route, engine) = (ms_between(last, chosen) - queue, ms_between(chosen, head));
        let timing =
            format!("route;dur={route:.3}, queue;dur={queue:.3}, upstream_head;dur={engine:.3}");
        headers.append(
            SERVER_TIMING,
            HeaderValue::from_str(&timing).unwrap_or(HeaderValue::from_static("")),
        );
    }
}

fn refuse(mut open: OpenExchange, refusal: &Refusal) -> Response<Reply> {
    open.refused(refusal);
    let client = open.client().cloned();
    let response = refusal.response(open.record.api).map(Reply::own);
    match client {
        Some(client) => client.end_at_flush(Some(open)),
        None => drop(open),
    }
    response
}

fn own_reply(client: Option<Arc<ClientSide>>, response: Response<Bytes>) -> Response<Reply> {
    if let Some(client) = client {
        client.end_at_flush(None);
    }
    response.map(Reply::own)
}

/// Keeps the client's `x-request-id` if it can be a header and a log field, else makes one.
fn keep_or_make_id(headers: &mut HeaderMap) -> String {
    let kept = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    if let Some(id) = kept.filter(|id| !id.is_empty() && id.len() <= REQUEST_ID_BYTES_MAX) {
        return id.to_owned();
    }
    let id = format!("{:032x}", rand::random::<u128>());
    set(headers, REQUEST_ID, &id);
    id
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
