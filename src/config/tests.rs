//! Files that are right, files that are wrong, and what is said of them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use insta::assert_snapshot;
use serde_json::Value as Json;

use super::checked::ArrivalStamp;
use super::*;

const MINIMAL: &str = include_str!("../../configs/minimal.toml");
const FULL: &str = include_str!("../../configs/full.toml");

fn right(text: &str) -> Config {
    parse(text, "test.toml").unwrap_or_else(|errors| panic!("{errors}"))
}

fn wrong(text: &str) -> String {
    parse(text, "test.toml")
        .expect_err("must be refused")
        .to_string()
}

/// A file that is right but for `more`, which stands before its one pool.
fn with(more: &str) -> String {
    format!(
        "server = {{ listen = \"127.0.0.1:0\" }}\n{more}\n[[pools]]\nname = \"a\"\npolicy = {{ kind = \"random\" }}\n\
         instances = [{{ url = \"http://e:1\" }}]\n"
    )
}

/// Pools told by their lines after the name, one instance each.
fn pools(lines: &[&str]) -> String {
    let mut text = "server = { listen = \"127.0.0.1:0\" }\n".to_owned();
    for (number, line) in lines.iter().enumerate() {
        text += &format!(
            "[[pools]]\nname = \"p{number}\"\npolicy = {{ kind = \"random\" }}\ninstances = [{{ url = \"http://e:{}\" }}]\n{line}\n",
            number + 1
        );
    }
    text
}

#[test]
fn every_example_is_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let mut read = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            load(&path).unwrap_or_else(|errors| panic!("{errors}"));
            read += 1;
        }
    }
    assert!(read >= 5, "only {read} examples");
}

#[test]
fn the_smallest_file_has_sound_defaults() {
    let config = right(MINIMAL);
    assert_eq!(&*config.pools[0].instances[1].name, "127.0.0.1:8001");
    assert_eq!(config.limits.hold_bytes, 8 << 20);
    assert_eq!(config.limits.body_bytes, 512 << 20);
    assert!(config.limits.buffered_bytes >= 8 << 20);
    assert!(
        config.timeouts.headers >= Duration::from_secs(120),
        "long prefills are normal"
    );
    assert!(config.timeouts.silence >= Duration::from_secs(240));
    assert!(
        config.timeouts.upstream_idle < Duration::from_secs(5),
        "engines close idle connections at 5 s"
    );
    assert!(config.server.workers >= 1);
    assert_eq!(config.warnings, Vec::<String>::new());
    assert_eq!(config.source, MINIMAL);
}

/// Keys of a schema, `pools.instances.url` and the like.
fn keys(schema: &Json, root: &Json, path: &str, into: &mut BTreeSet<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        return keys(
            &root["$defs"][name.trim_start_matches("#/$defs/")],
            root,
            path,
            into,
        );
    }
    for choices in [&schema["anyOf"], &schema["oneOf"]] {
        for choice in choices.as_array().into_iter().flatten() {
            keys(choice, root, path, into);
        }
    }
    if schema["items"].is_object() {
        keys(&schema["items"], root, path, into);
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        keys(inner, root, &path, into);
        into.insert(path);
    }
}

fn written(value: &toml::Value, path: &str, into: &mut BTreeSet<String>) {
    match value {
        toml::Value::Array(items) => items.iter().for_each(|item| written(item, path, into)),
        toml::Value::Table(table) => {
            for (name, inner) in table {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                written(inner, &path, into);
                into.insert(path);
            }
        }
        _ => {}
    }
}

#[test]
fn the_full_example_has_every_key_of_the_schema() {
    let schema = schema();
    let mut known = BTreeSet::new();
    keys(&schema, &schema, "", &mut known);
    assert!(known.contains("limits.hold_bytes") && known.contains("pools.models.aliases"));
    let mut shown = BTreeSet::new();
    written(&toml::Value::Table(FULL.parse().unwrap()), "", &mut shown);
    let left_out: Vec<_> = known.difference(&shown).collect();
    assert!(left_out.is_empty(), "configs/full.toml lacks {left_out:?}");
}

#[test]
fn the_full_example_shows_the_defaults() {
    let (full, minimal) = (right(FULL), right(MINIMAL));
    assert_eq!(
        format!("{:?}", full.timeouts),
        format!("{:?}", minimal.timeouts)
    );
    assert_eq!(
        format!("{:?}", full.measure),
        format!("{:?}", minimal.measure)
    );
    assert_eq!(
        format!("{:?}", full.records),
        format!("{:?}", minimal.records)
    );
    assert_eq!(
        format!("{:?}", full.client),
        format!("{:?}", minimal.client)
    );
    let buffered = |config: &Config| Limits {
        buffered_bytes: 0,
        ..config.limits.clone()
    };
    assert_eq!(
        format!("{:?}", buffered(&full)),
        format!("{:?}", buffered(&minimal))
    );
    assert_eq!(
        full.server.response_headers,
        minimal.server.response_headers
    );
    assert_eq!(full.server.runtime, minimal.server.runtime);
    assert_eq!(full.log.level, minimal.log.level);
}

#[test]
fn models_and_aliases_lead_to_their_pool_and_others_to_the_catch_all() {
    let config = right(&pools(&[
        "models = [{ name = \"m\", aliases = [\"lora\"] }]",
        "",
    ]));
    let place = |model| {
        config
            .pools_for(model)
            .map(|choice| (choice.pick(0.5).pool, choice.pick(0.5).model))
    };
    assert_eq!(place(Some("m")), Ok((0, 0)));
    assert_eq!(place(Some("lora")), Ok((0, 0)));
    assert_eq!(place(Some("unheard")), Ok((1, 0)));
    assert_eq!(place(None), Ok((1, 0)));
}

#[test]
fn without_a_catch_all_an_unknown_model_has_no_pool() {
    let config = right(&pools(&["models = [\"m\"]", "models = [\"n\"]"]));
    assert_eq!(config.pools_for(Some("x")), Err(NoPool::UnknownModel));
    assert_eq!(config.pools_for(None), Err(NoPool::ModelMissing));
    let one = right(&pools(&["models = [\"m\"]"]));
    assert_eq!(
        one.pools_for(None).map(|choice| choice.pick(0.0).pool),
        Ok(0),
        "there is only one to be meant"
    );
    let both = right(&pools(&[
        "models = [\"m\"]\ndefault = true",
        "models = [\"n\"]",
    ]));
    assert_eq!(
        both.pools_for(Some("x"))
            .map(|choice| choice.pick(0.0).pool),
        Ok(0)
    );
}

#[test]
fn pools_that_share_a_model_split_its_requests() {
    let config = right(&pools(&[
        "models = [\"m\"]\nshare = 3",
        "models = [\"m\", \"n\"]\nshare = 1",
    ]));
    let choice = config.pools_for(Some("m")).unwrap();
    let second = (0..1000)
        .filter(|n| choice.pick(f64::from(*n) / 1000.0).pool == 1)
        .count();
    assert_eq!(second, 250);
    assert_eq!(
        choice.pick(1.0).pool,
        1,
        "the end of the range is the last pool"
    );
}

#[test]
fn an_engine_in_two_pools_is_warned_of() {
    let text = pools(&["models = [\"m\"]", "models = [\"n\"]"]).replace("http://e:2", "http://e:1");
    assert_snapshot!(right(&text).warnings.join("\n"), @r#"
    instance e:1 is in pools "p0" and "p1": neither sees the load of the other there
    "#);
}

#[test]
fn arrivals_are_stamped_by_the_read_unless_the_kernel_is_asked() {
    assert_eq!(right(MINIMAL).measure.arrival, ArrivalStamp::Read);
    let asked = with("measure = { arrival = \"kernel\" }");
    assert_eq!(right(&asked).measure.arrival, ArrivalStamp::Kernel);
    assert_snapshot!(wrong(&with("measure = { arrival = \"kernal\" }")), @r#"
    error: `measure.arrival` cannot be "kernal"
     --> test.toml:2:23
      |
    2 | measure = { arrival = "kernal" }
      |                       ^^^^^^^^ not one of the allowed values
      |
      = help: did you mean "kernel"? allowed: `read`, `kernel`
    "#);
}

#[test]
fn several_slips_are_told_at_once() {
    let text = with(
        "[server2]\n[limits]\nhold_byte = 1\nmax_series = \"many\"\n[measure]\nusage = \"asked\"",
    );
    assert_snapshot!(wrong(&text), @r#"
    error: unknown key `server2` at the top of the file
     --> test.toml:2:2
      |
    2 | [server2]
      |  ^^^^^^^ not known here
      |
      = help: did you mean `server`?

    error: unknown key `hold_byte` in `limits`
     --> test.toml:4:1
      |
    4 | hold_byte = 1
      | ^^^^^^^^^ not known here
      |
      = help: did you mean `hold_bytes`?

    error: `limits.max_series` must be a whole number
     --> test.toml:5:14
      |
    5 | max_series = "****"
      |              ^^^^^^ this is a string

    error: `measure.usage` cannot be "asked"
     --> test.toml:7:9
      |
    7 | usage = "asked"
      |         ^^^^^^^ not one of the allowed values
      |
      = help: did you mean "as_asked"? allowed: `as_asked`, `ask`
    "#);
}

#[test]
fn a_slip_in_a_key_gets_the_nearest() {
    assert_snapshot!(wrong("[server]\nlistne = \"127.0.0.1:80\"\n\n[[pools]]\nname = \"a\"\npolicy = { kind = \"random\" }\ninstances = [{ url = \"http://e:1\" }]\n"), @r#"
    error: unknown key `listne` in `server`
     --> test.toml:2:1
      |
    2 | listne = "************"
      | ^^^^^^ not known here
      |
      = help: did you mean `listen`?
    "#);
}

#[test]
fn what_is_no_toml_is_told_by_its_place() {
    assert_snapshot!(wrong("[server]\nlisten = 127.0.0.1:80\n"), @r#"
    error: not TOML: invalid float, expected nothing
     --> test.toml:2:15
      |
    2 | listen = ************
      |               ^^^^^^^ here
      |
      = help: text stands in double quotes: key = "value"
    "#);
}

#[test]
fn an_empty_file_is_told_what_it_needs() {
    assert_snapshot!(wrong(""), @r#"
    error: missing key `server`
     --> test.toml:1:1
      |
    1 |
      | ^ needs `server`
      |
      = help: `server` is the data port

    error: missing key `pools`
     --> test.toml:1:1
      |
    1 |
      | ^ needs `pools`
      |
      = help: `pools` is pools of instances
    "#);
}

#[test]
fn an_unknown_policy_is_told_the_known_ones() {
    assert_snapshot!(wrong(&with("").replace("\"random\"", "\"round-robin\"")), @r#"
    error: `pools[0].policy.kind` cannot be "round-robin"
     --> test.toml:5:19
      |
    5 | policy = { kind = "round-robin" }
      |                   ^^^^^^^^^^^^^ not one of the allowed values
      |
      = help: did you mean "round_robin"? allowed: `random`, `round_robin`, `least_requests`, `least_outstanding_tokens`, `lanes`
    "#);
}

#[test]
fn a_pool_without_policy_or_instances_is_refused() {
    let text = "server = { listen = \"127.0.0.1:0\" }\n[[pools]]\nname = \"a\"\npolicy = {}\ninstances = []\n";
    assert_snapshot!(wrong(text), @r#"
    error: missing key `pools[0].policy.kind`
     --> test.toml:4:10
      |
    4 | policy = {}
      |          ^^ needs `kind`
      |
      = help: kind is one of `random`, `round_robin`, `least_requests`, `least_outstanding_tokens`, `lanes`
    "#);
    assert_snapshot!(wrong(&text.replace("{}", "{ kind = \"random\" }")), @r#"
    error: pool "a" has no instances
     --> test.toml:5:13
      |
    5 | instances = []
      |             ^^ empty
      |
      = help: add `[[pools.instances]]` with `url = "http://HOST:PORT"`
    "#);
}

#[test]
fn lanes_are_judged_by_their_own_rules() {
    let lanes = "kind = \"lanes\", lanes = [{ name = \"short\", max_tokens = 9, reserve = 1.5 }, { name = \"long\" }]";
    assert_snapshot!(wrong(&with("").replace("kind = \"random\"", lanes)), @r#"
    error: `pools[0].policy.lanes[0].reserve` is 1.5; give a share from 0 to below 1, as 0.25
     --> test.toml:5:81
      |
    5 | policy = { kind = "lanes", lanes = [{ name = "short", max_tokens = 9, reserve = 1.5 }, { name = "long" }] }
      |                                                                                 ^^^ cannot be used
    "#);
    let slip = lanes.replace("reserve", "reserved");
    assert_snapshot!(wrong(&with("").replace("kind = \"random\"", &slip)), @r#"
    error: unknown key `reserved` in `pools[0].policy.lanes[0]`
     --> test.toml:5:71
      |
    5 | policy = { kind = "lanes", lanes = [{ name = "short", max_tokens = 9, reserved = 1.5 }, { name = "long" }] }
      |                                                                       ^^^^^^^^ not known here
      |
      = help: did you mean `reserve`?
    "#);
}

#[test]
fn addresses_are_told_how_to_be_written() {
    assert_snapshot!(wrong(&with("admin = { listen = \"localhost:9090\" }")), @r#"
    error: `admin.listen` is no address to listen on
     --> test.toml:2:20
      |
    2 | admin = { listen = "localhost:9090" }
      |                    ^^^^^^^^^^^^^^^^ not an IP address and port
      |
      = help: write "127.0.0.1:9090"
    "#);
}

#[test]
fn the_admin_port_is_its_own() {
    let text = with("admin = { listen = \"127.0.0.1:80\" }").replace("127.0.0.1:0", "0.0.0.0:80");
    assert_snapshot!(wrong(&text), @r#"
    error: `admin.listen` has the port of `server.listen`
     --> test.toml:2:20
      |
    2 | admin = { listen = "127.0.0.1:80" }
      |                    ^^^^^^^^^^^^^^ already taken
      |
      = help: give the admin listener a port of its own, so that it can stay closed from outside
    "#);
}

#[test]
fn instances_are_listed_once_with_usable_urls_and_weights() {
    let instances = "[{ url = \"http://e:1\" }, { url = \"http://e:1\", name = \"b\" }, { url = \"httpx://e:2\" }, \
                     { url = \"http://e:3/v1\" }, { url = \"http://e:4\", weight = 0 }, { url = \"http://e:5\", name = \"other\" }]";
    assert_snapshot!(wrong(&with("").replace("[{ url = \"http://e:1\" }]", instances)), @r#"
    error: `pools[0].instances[1].url` is the URL of `pools[0].instances[0]` too
     --> test.toml:6:46
      |
    6 | instances = [{ url = "http://e:1" }, { url = "http://e:1", name = "b" }, { url = "httpx://e:2" }, { url = "http://e:3/v1" }, { url = ...
      |                                              ^^^^^^^^^^^^ listed twice
      |
      = help: each instance is listed once; to give one more work, raise its `weight`

    error: `pools[0].instances[2].url` "httpx://e:2" cannot be used
     --> test.toml:6:82
      |
    6 | instances = [{ url = "http://e:1" }, { url = "http://e:1", name = "b" }, { url = "httpx://e:2" }, { url = "http://e:3/v1" }, { url = ...
      |                                                                                  ^^^^^^^^^^^^^ the scheme `httpx` is not spoken
      |
      = help: write one like "http://10.0.0.1:8000"

    error: `pools[0].instances[3].url` "http://e:3/v1" cannot be used
     --> test.toml:6:107
      |
    6 | ...b" }, { url = "httpx://e:2" }, { url = "http://e:3/v1" }, { url = "http://e:4", weight = 0 }, { url = "http://e:5", name = "other" }]
      |                                           ^^^^^^^^^^^^^^^ request paths begin with /v1 already
      |
      = help: write "http://e:3"

    error: `pools[0].instances[4].weight` must be above 0
     --> test.toml:6:157
      |
    6 | ...{ url = "http://e:3/v1" }, { url = "http://e:4", weight = 0 }, { url = "http://e:5", name = "other" }]
      |                                                              ^ not a weight
      |
      = help: an instance that should get nothing is left out of the file

    error: `pools[0].instances[5].name` cannot be "other"
     --> test.toml:6:191
      |
    6 | ..."http://e:4", weight = 0 }, { url = "http://e:5", name = "other" }]
      |                                                             ^^^^^^^ reserved
      |
      = help: choose another name; metrics use this one for sums
    "#);
}

#[test]
fn keys_and_secrets_that_cannot_be_meant_are_refused() {
    let key = |more: &str| {
        let hash = "0".repeat(64);
        with(&format!(
            "[[keys]]\nname = \"a\"\nsha256 = \"{hash}\"\n{more}\n"
        ))
    };
    let config = right(&key("requests_per_s = 2.5\nmax_concurrent = 3"));
    let keys = config.keys.unwrap();
    let rate = keys[0].rate.unwrap();
    assert_eq!(
        (rate.per_s, rate.burst.get(), keys[0].max_concurrent),
        (2.5, 3, Some(3))
    );
    assert!(!config.server.forward_client_credentials);
    assert!(right(MINIMAL).server.forward_client_credentials);
    for (text, words) in [
        (with("keys = []"), "nobody could come in"),
        (
            key("requests_per_s = 0"),
            "`keys[0].requests_per_s` must be",
        ),
        (
            key("requests_per_s = inf"),
            "`keys[0].requests_per_s` must be",
        ),
        (
            key("requests_per_s = 1\nburst = 0"),
            "`keys[0].burst` must be",
        ),
        (key("burst = 5"), "`keys[0].burst` stands without"),
        (
            key("max_concurrent = 0"),
            "`keys[0].max_concurrent` must be",
        ),
        (key("sha = 1"), "unknown key `sha`"),
        (
            with("[[keys]]\nname = \"a\"\nsha256 = \"ab\""),
            "`keys[0].sha256` is no SHA-256",
        ),
        (
            key(&format!(
                "[[keys]]\nname = \"a\"\nsha256 = \"{}\"",
                "1".repeat(64)
            )),
            "is taken by `keys[0].name`",
        ),
        (
            key(&format!(
                "[[keys]]\nname = \"b\"\nsha256 = \"{}\"",
                "0".repeat(64)
            )),
            "is the hash of `keys[0]` too",
        ),
        (
            with("admin = { token = \"hunter2\" }"),
            "`admin.token` does not say where",
        ),
    ] {
        let said = wrong(&text);
        assert!(said.contains(words), "no {words:?} in\n{said}");
    }
}

#[test]
fn tls_that_cannot_be_meant_is_refused() {
    let pool = |url: &str, tls: &str| {
        with("").replace("http://e:1", url) + &format!("tls = {{ {tls} }}\n")
    };
    let config = right(&pool(
        "https://e:1",
        "ca = \"a\", server_name = \"10.0.0.1\"",
    ));
    assert!(config.pools[0].tls.server_name.is_some() && config.pools[0].instances[0].url.tls);
    for (text, words) in [
        (
            pool("http://e:1", "ca = \"a\""),
            "no instance to speak TLS with",
        ),
        (
            pool("https://e:1", "cert = \"a\""),
            "`pools[0].tls.cert` stands without `key`",
        ),
        (
            pool("https://e:1", "key = \"a\""),
            "`pools[0].tls.key` stands without `cert`",
        ),
        (
            pool("https://e:1", "server_name = \"a:1\""),
            "`pools[0].tls.server_name` cannot be",
        ),
        (
            pool("https://e:1", "verify = false"),
            "unknown key `verify`",
        ),
        (
            with("").replace("127.0.0.1:0\"", "127.0.0.1:0\", tls = { cert = \"a\" }"),
            "`key`",
        ),
        (
            with("").replace(
                "127.0.0.1:0\"",
                "127.0.0.1:0\", tls = { cert = \"a\", key = \"b\", reload_check_s = 0 }",
            ),
            "`server.tls.reload_check_s` must be",
        ),
    ] {
        let said = wrong(&text);
        assert!(said.contains(words), "no {words:?} in\n{said}");
    }
}

#[test]
fn a_model_in_two_pools_needs_shares() {
    assert_snapshot!(wrong(&pools(&["models = [\"m\"]", "models = [{ name = \"n\", aliases = [\"m\"] }]"])), @r#"
    error: the model "m" is served by pool "p0" and by pool "p1"
      --> test.toml:11:11
       |
    11 | models = [{ name = "n", aliases = ["m"] }]
       |           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ in two pools
       |
       = help: put all its instances into one pool; or, to split its requests at random, give each of the pools a `share`, such as `share = 1`
    "#);
}

#[test]
fn two_pools_for_every_model_are_refused() {
    assert_snapshot!(wrong(&pools(&["", ""])), @r#"
    error: pools "p0" and "p1" both take every model
     --> test.toml:7:1
      |
    7 | [[pools]]
      | ^^^^^^^^^ a second pool for every model
      |
      = help: name the `models` of all pools but one
    "#);
}

#[test]
fn values_out_of_range_are_refused() {
    let text =
        with("[timeouts]\nconnect_s = 0\nsilence_s = inf\n[limits]\nhold_bytes = \"8 apples\"\n");
    assert_snapshot!(wrong(&text), @r#"
    error: `limits.hold_bytes` cannot be "8 apples"
     --> test.toml:6:14
      |
    6 | hold_bytes = "8 apples"
      |              ^^^^^^^^^^ not a size
      |
      = help: write a number of bytes, or a size such as "8 MiB" or "512 MB"
    "#);
    let text = with(
        "[timeouts]\nconnect_s = 0\nsilence_s = nan\n[limits]\nhead_bytes = 100\n[log]\nlevel = \"lou=d=\"\n",
    );
    assert_snapshot!(wrong(&text), @r#"
    error: `timeouts.connect_s` must be a time above 0
     --> test.toml:3:13
      |
    3 | connect_s = 0
      |             ^ not a usable time
      |
      = help: write seconds above 0, such as 1.5; for practically no limit, 1e9

    error: `timeouts.silence_s` must be a time above 0
     --> test.toml:4:13
      |
    4 | silence_s = nan
      |             ^^^ not a usable time
      |
      = help: write seconds above 0, such as 1.5; for practically no limit, 1e9

    error: `limits.head_bytes` must be at least 8 KiB
     --> test.toml:6:14
      |
    6 | head_bytes = 100
      |              ^^^ too small

    error: `log.level` cannot be "lou=d="
     --> test.toml:8:9
      |
    8 | level = "lou=d="
      |         ^^^^^^^^ not a level
      |
      = help: allowed: `error`, `warn`, `info`, `debug`, `trace`, or a filter such as "info,evenkeel::proxy=debug"
    "#);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = load(Path::new("/nowhere/evenkeel.toml"))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("cannot read the configuration /nowhere/evenkeel.toml: "),
        "{error}"
    );
}

proptest::proptest! {
    #[test]
    fn any_text_is_judged_without_panic(text in ".*", cut in 0_usize..3000) {
        let _ = parse(&text, "x").map_err(|errors| errors.to_string());
        let cut = FULL.floor_char_boundary(cut);
        let _ = parse(&FULL[..cut], "x").map_err(|errors| errors.to_string());
    }
}

#[test]
fn what_cannot_change_while_it_runs_is_named_with_its_line() {
    let running = right(&with(""));
    let changed = right(&with(
        "[records]\ndir = \"x\"\n[measure]\narrival = \"kernel\"\n[timeouts]\nsilence_s = 3.0",
    ));
    let report = fixed::check(&running, &changed, "test.toml").unwrap_err();
    let lines: Vec<usize> = report
        .faults
        .iter()
        .map(|fault| report.line(fault))
        .collect();
    assert_eq!(lines, [5, 2]);
    let said = report.to_string();
    assert!(
        said.contains("`measure.arrival` cannot change while the server runs"),
        "{said}"
    );
    assert!(
        said.contains("test.toml:5") && said.contains("`records`"),
        "{said}"
    );
    // and what was taken out is told too
    let report = fixed::check(&changed, &running, "test.toml").unwrap_err();
    assert_eq!(report.faults.len(), 2);

    let free = right(&with(
        "seed = 9\n[timeouts]\nsilence_s = 3.0\n[limits]\nmax_connections = 7",
    ));
    fixed::check(&running, &free, "test.toml").unwrap();
    // a machine with another number of cores by now is nobody's wish
    let mut other_cores = running.clone();
    other_cores.server.workers += 1;
    fixed::check(&running, &other_cores, "test.toml").unwrap();
}
