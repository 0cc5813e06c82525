//! The instance's HTTP paths.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::answer;
use super::ask::{self, Api, ApiError, Ask};
use super::body::{Cut, SseBody, TokenStream};
use super::faults::{Fault, FaultKind};
use super::runner::Instance;
use super::tokenizer::{self, Prompt};
use super::wire::{Head, Renderer};
use crate::splitmix::mix;

type Body = UnsyncBoxBody<Bytes, Cut>;
type Answer = Result<Response<Body>, Cut>;

const BODY_LIMIT_BYTES: usize = 64 << 20;

/// Answers one request. An error ends the connection.
pub(crate) async fn answer(
    instance: Arc<Instance>,
    reset: Arc<AtomicBool>,
    request: Request<Incoming>,
) -> Answer {
    let (parts, body) = request.into_parts();
    let inference = match parts.uri.path() {
        "/v1/chat/completions" => Some(Api::Chat),
        "/v1/completions" => Some(Api::Completions),
        "/v1/responses" => Some(Api::Responses),
        "/v1/messages" => Some(Api::Messages),
        "/v1/embeddings" => Some(Api::Embeddings),
        _ => None,
    };
    if inference.is_some() && parts.method != Method::POST {
        return Ok(json_answer(405, &json!({"detail": "Method Not Allowed"})));
    }
    let Ok(body) = Limited::new(body, BODY_LIMIT_BYTES).collect().await else {
        return Ok(json_answer(
            413,
            &json!({"detail": "Request body too large"}),
        ));
    };
    let body = body.to_bytes();
    match inference {
        Some(api) => infer(&instance, reset, api, &parts.headers, &body).await,
        None => Ok(plain(&instance, &parts.method, parts.uri.path(), &body)),
    }
}

async fn infer(
    instance: &Arc<Instance>,
    reset: Arc<AtomicBool>,
    api: Api,
    headers: &http::HeaderMap,
    body: &[u8],
) -> Answer {
    let fault = instance.faults.strike();
    match fault {
        Some(FaultKind::Status { status }) => {
            let text = "Internal server error".to_owned();
            return Ok(error_answer(ApiError::new(
                status,
                "InternalServerError",
                None,
                text,
            )));
        }
        Some(FaultKind::Silent { head: false }) => std::future::pending().await,
        _ => {}
    }
    let ask = match ask::read(
        api,
        body,
        &instance.model_name,
        &instance.profile,
        instance.seed,
    ) {
        Ok(ask) => ask,
        Err(error) => return Ok(error_answer(error)),
    };
    let head = head(instance, headers);
    let stream = TokenStream::begin(instance, &ask);
    if !ask.stream {
        return whole(stream, &ask, &head, fault, &reset).await;
    }
    let body = SseBody::new(stream, Renderer::new(ask, head), fault, reset);
    let answer = Response::builder()
        .header(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")
        .body(body.boxed_unsync());
    Ok(finish(answer))
}

fn head(instance: &Instance, headers: &http::HeaderMap) -> Head {
    let given = headers
        .get("x-request-id")
        .and_then(|value| value.to_str().ok());
    let id = match given {
        Some(id) => id.to_owned(),
        None => format!("{:016x}", mix(instance.seed ^ mix(instance.fresh_id()))),
    };
    Head {
        id,
        created_s: now_s(),
        model: instance.model_name.clone(),
    }
}

/// Waits for every choice, then answers at once.
async fn whole(
    mut stream: TokenStream,
    ask: &Ask,
    head: &Head,
    fault: Option<FaultKind>,
    reset: &AtomicBool,
) -> Answer {
    let mut ends: Vec<(u32, String)> = vec![(0, String::new()); ask.choices.len()];
    let mut open = ends.len();
    let mut seen = 0;
    while open > 0 {
        let Some(token) = stream.next().await else {
            return Err(Cut);
        };
        let mut finish = token.finish.map(|finish| finish.name());
        match fault {
            Some(FaultKind::Cut {
                after_chunks,
                reset: by_reset,
            }) if seen >= after_chunks => {
                reset.store(by_reset, Ordering::Relaxed);
                return Err(Cut);
            }
            Some(FaultKind::InBandError { after_chunks }) if seen >= after_chunks => {
                let text = "EngineCore encountered an issue.".to_owned();
                let error = ApiError::new(500, "InternalServerError", None, text);
                return Ok(error_answer(error));
            }
            Some(FaultKind::Abort { after_chunks }) if seen + 1 >= after_chunks => {
                finish = Some("abort");
            }
            _ => {}
        }
        seen += 1;
        let end = &mut ends[token.choice as usize];
        if !end.1.is_empty() {
            continue; // Aborted on demand: what the model still makes of it is dropped.
        }
        end.0 += 1;
        if let Some(finish) = finish {
            finish.clone_into(&mut end.1);
            open -= 1;
        }
    }
    if matches!(fault, Some(FaultKind::Silent { .. })) {
        std::future::pending::<()>().await;
    }
    Ok(json_answer(200, &answer::whole(ask, head, &ends)))
}

fn plain(instance: &Arc<Instance>, method: &Method, path: &str, body: &[u8]) -> Response<Body> {
    match (method.as_str(), path) {
        ("GET" | "HEAD", "/health") | ("GET" | "POST", "/ping") => empty(),
        ("GET", "/version") => json_answer(200, &json!({"version": "0.32.0"})),
        ("GET", "/load") => {
            let load = instance.in_service.load(Ordering::Relaxed);
            json_answer(200, &json!({"server_load": load}))
        }
        ("GET", "/v1/models") => json_answer(200, &models(instance)),
        ("GET", "/metrics") => {
            let block = instance.profile.block_size_tokens;
            let metrics = instance.metrics.lock();
            let process = metrics.hardware.process(instance.now_ns());
            exposition(metrics.render(&instance.model_name, block) + &process)
        }
        ("GET", "/dcgm/metrics") => {
            let metrics = instance.metrics.lock();
            let now_ns = instance.now_ns();
            exposition(
                metrics
                    .hardware
                    .dcgm(now_ns, &instance.profile, instance.number),
            )
        }
        ("GET", "/node/metrics") => {
            let metrics = instance.metrics.lock();
            let node = metrics.hardware.node(instance.now_ns(), &instance.profile);
            exposition(node.unwrap_or_default())
        }
        ("POST", "/tokenize") => or_error(tokenize(instance, body)),
        ("POST", "/detokenize") => or_error(detokenize(instance, body)),
        ("POST", "/admin/fault") => add_fault(instance, body),
        ("GET", "/admin/fault") => json_answer(200, &json!({"faults": instance.faults.list()})),
        ("DELETE", "/admin/fault") => {
            instance.faults.clear();
            instance.faults_changed();
            json_answer(200, &json!({"faults": []}))
        }
        _ => json_answer(404, &json!({"detail": "Not Found"})),
    }
}

fn exposition(text: String) -> Response<Body> {
    full(200, "text/plain; version=0.0.4; charset=utf-8", text.into())
}

fn add_fault(instance: &Arc<Instance>, body: &[u8]) -> Response<Body> {
    let fault = serde_json::from_slice::<Fault>(body).map_err(|error| error.to_string());
    match fault.and_then(|fault| fault.check().map(|()| fault)) {
        Ok(fault) => {
            instance.faults.add(fault);
            instance.faults_changed();
            json_answer(200, &json!({"faults": instance.faults.list()}))
        }
        Err(text) => error_answer(ApiError::new(400, "BadRequestError", None, text)),
    }
}

fn models(instance: &Instance) -> Value {
    let created = now_s();
    let permission = json!({"id": "modelperm-evenkeel", "object": "model_permission",
        "created": created, "allow_create_engine": false, "allow_sampling": true,
        "allow_logprobs": true, "allow_search_indices": false, "allow_view": true,
        "allow_fine_tuning": false, "organization": "*", "group": null, "is_blocking": false});
    json!({"object": "list", "data": [{"id": instance.model_name, "object": "model",
        "created": created, "owned_by": "vllm", "root": instance.profile.name, "parent": null,
        "max_model_len": instance.profile.max_model_len_tokens, "permission": [permission]}]})
}

fn tokenize(instance: &Instance, body: &[u8]) -> Result<Value, ApiError> {
    let body = ask::parse(body)?;
    ask::check_model(&body, &instance.model_name)?;
    let prompt = match (body.get("prompt"), body.get("messages")) {
        (Some(Value::String(text)), _) => Prompt::text(text),
        (_, Some(Value::Array(messages))) => ask::chat_prompt(None, messages),
        _ => {
            let text = "prompt or messages is needed".to_owned();
            return Err(ApiError::new(400, "Bad Request", Some("body.prompt"), text));
        }
    };
    Ok(
        json!({"count": prompt.tokens(), "tokens": prompt.token_ids(), "token_strs": null,
        "max_model_len": instance.profile.max_model_len_tokens}),
    )
}

fn detokenize(instance: &Instance, body: &[u8]) -> Result<Value, ApiError> {
    let body = ask::parse(body)?;
    ask::check_model(&body, &instance.model_name)?;
    let prompts = ask::plain_prompts(body.get("tokens")).unwrap_or_default();
    let ids = prompts.first().map(Prompt::token_ids).unwrap_or_default();
    Ok(json!({"prompt": tokenizer::detokenize(&ids)}))
}

fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

fn or_error(result: Result<Value, ApiError>) -> Response<Body> {
    match result {
        Ok(body) => json_answer(200, &body),
        Err(error) => error_answer(error),
    }
}

fn error_answer(error: ApiError) -> Response<Body> {
    json_answer(error.status, &error.body)
}

fn json_answer(status: u16, body: &Value) -> Response<Body> {
    full(status, "application/json", body.to_string().into())
}

fn full(status: u16, kind: &'static str, bytes: Bytes) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = Full::new(bytes).map_err(Cut::from).boxed_unsync();
    finish(
        Response::builder()
            .status(status)
            .header(header::CONTENT_TYPE, kind)
            .body(body),
    )
}

fn empty() -> Response<Body> {
    finish(Response::builder().body(Full::default().map_err(Cut::from).boxed_unsync()))
}

/// Adds what every answer of vLLM carries.
fn finish(answer: Result<Response<Body>, http::Error>) -> Response<Body> {
    let mut answer =
        answer.unwrap_or_else(|_| Response::new(Full::default().map_err(Cut::from).boxed_unsync()));
    let headers = answer.headers_mut();
    headers.insert(header::SERVER, header::HeaderValue::from_static("uvicorn"));
    headers.insert(header::VARY, header::HeaderValue::from_static("Origin"));
    answer
}
