//! From what a request says to a place on an instance.

use std::sync::Arc;

use evenkeel_policies::scheduler::{InstanceId, ShedReason};
use evenkeel_policies::shape::{Api, RequestShape};
use http::HeaderMap;

use super::core::Core;
use super::finish::OpenExchange;
use super::generation::Generation;
use super::receive::{Received, bounded};
use super::refusal::Refusal;
use super::response_ids::Place;
use crate::config::checked::NoPool;
use crate::fleet::pool::{Pool, Shed, To};
use crate::measure::clock::now_ns;

/// Names the instance a request must go to, where the operator allows it.
const ENDPOINT_HEADER: &str = "x-gateway-destination-endpoint";

/// Where a request may go.
pub struct Route {
    /// pool
    pub pool: Arc<Pool>,
    /// what routing knows of the request
    pub shape: RequestShape,
    /// the only instance it may go to
    pub pinned: Option<InstanceId>,
}

/// Whether the instance that made a response still serves.
pub fn is_there(generation: &Generation, place: Place) -> bool {
    let pool = generation.fleet.by_serial(place.pool);
    pool.is_some_and(|(_, pool)| pool.members().serves(place.instance))
}

/// Settles pool and shape.
pub fn route(
    core: &Core,
    generation: &Generation,
    open: &mut OpenExchange,
    api: Api,
    headers: &HeaderMap,
    received: &Received,
    stored: Option<Place>,
) -> Result<Route, Refusal> {
    let (config, fleet) = (&generation.config, &generation.fleet);
    let skim = &received.skim;
    let model = skim.model.as_deref();
    // a response that continues another one goes where that one is kept, if it is known
    let continued = skim
        .previous_response_id
        .as_deref()
        .and_then(|id| core.shared.response_ids.place(id))
        .filter(|place| is_there(generation, *place));
    let stored = stored.or(continued);
    open.record.model = model.map(|model| bounded(model, 128));
    let (pool_index, model_index) = match stored.and_then(|place| fleet.by_serial(place.pool)) {
        Some((index, _)) => (index, 0),
        None => {
            let place = config.pools_for(model).map_err(|error| match error {
                NoPool::UnknownModel => {
                    Refusal::UnknownModel(bounded(model.unwrap_or_default(), 128))
                }
                NoPool::ModelMissing => Refusal::NoModel,
            })?;
            let place = place.pick(rand::random());
            (place.pool, place.model)
        }
    };
    let pool = fleet.pools[pool_index].clone();
    let shape = shape(&pool, model_index, api, received);
    open.record.pool = Some(pool.name.clone());
    open.record.policy = Some(pool.members().policy.clone());
    open.shaped(skim.facts, shape);
    let named = config
        .server
        .allow_endpoint_header
        .then(|| named_instance(&pool, headers))
        .flatten();
    Ok(Route {
        pool,
        shape,
        pinned: stored.map(|place| place.instance).or(named),
    })
}

fn shape(pool: &Pool, model_index: u32, api: Api, received: &Received) -> RequestShape {
    let skim = &received.skim;
    let model = skim.model.as_deref().unwrap_or_default();
    let expected = pool
        .estimates
        .expect(model, api, skim.session, &skim.facts, skim.max_output);
    RequestShape {
        api,
        model: model_index,
        prompt_tokens: expected.prompt_tokens,
        cached_tokens: 0,
        max_output_tokens: skim.max_output,
        predicted_output_tokens: expected.output_tokens,
        choices: skim.facts.choices.max(1),
        stream: skim.stream,
        body_bytes: received.body_bytes,
        session: skim.session,
    }
}

fn named_instance(pool: &Pool, headers: &HeaderMap) -> Option<InstanceId> {
    let named = headers.get(ENDPOINT_HEADER)?.to_str().ok()?;
    let members = pool.members();
    members
        .instances
        .iter()
        .find(|instance| instance.url.authority == named || *instance.name == *named)
        .map(|i| i.id)
}

/// Takes a place on an instance, waiting in a queue if the lane has one. `failed` is passed over if it can be.
pub async fn admit(
    open: &mut OpenExchange,
    route: &Route,
    failed: &[InstanceId],
) -> Result<(), Refusal> {
    let arrived = now_ns();
    let first = *open.record.stamps.arrive_ns.get_or_insert(arrived);
    let to = route.pinned.map_or(To::AnyBut(failed), To::Only);
    let admitted = route.pool.admit(&route.shape, to).await;
    let chosen = now_ns();
    let stamps = &mut open.record.stamps;
    stamps.retry_ns = (arrived - first).saturating_sub(stamps.queue_ns);
    stamps.chosen_ns = Some(chosen);
    match admitted {
        Ok(lease) => {
            stamps.queue_ns += lease.waited_ns;
            open.leased(lease);
            Ok(())
        }
        Err(shed) => {
            stamps.queue_ns += chosen - arrived;
            Err(refusal(&route.pool, shed))
        }
    }
}

fn refusal(pool: &Pool, shed: Shed) -> Refusal {
    let shed_as = |reason, code| Refusal::Shed {
        reason,
        code,
        retry_after_s: shed.retry_after_s.max(1),
    };
    match shed.reason {
        ShedReason::QueueFull => shed_as("The queue is full", "queue_full"),
        ShedReason::QueueBytes => shed_as("The queue holds too many bytes", "queue_bytes"),
        ShedReason::QueueWait => {
            shed_as("The request waited too long in the queue", "queue_timeout")
        }
        ShedReason::NoInstance => Refusal::NoInstance {
            pool: pool.name.to_string(),
        },
    }
}
