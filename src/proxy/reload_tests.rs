//! The watched file, look by look.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use super::*;
use crate::proxy::server::shared;

fn text(instances: &[u16], more: &str) -> String {
    let mut text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nworkers = 1\n[[pools]]\nname = \"p\"\npolicy = {{ kind = \"random\" }}\n{more}\n"
    );
    for port in instances {
        text += &format!("[[pools.instances]]\nurl = \"http://127.0.0.1:{port}\"\n");
    }
    text
}

fn watched(file: &Path) -> (Arc<Shared>, Watcher) {
    let config = config::load(file).unwrap();
    let shared = shared(&Arc::new(config), Some(file.to_owned())).unwrap();
    let watcher = Watcher::new(shared.clone(), file.to_owned());
    (shared, watcher)
}

/// Reloads taken and refused, and how many instances there are, after as many looks.
fn after(looks: usize, shared: &Shared, watcher: &mut Watcher) -> (u64, u64, usize) {
    for _ in 0..looks {
        watcher.look();
    }
    let (taken, refused) = shared.reloads.counts();
    let generation = shared.generation();
    let members = generation.fleet.pools[0].members();
    (taken, refused, members.instances.len())
}

#[test]
fn a_change_is_taken_once_and_only_when_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    let whole = text(&[1, 2, 3], "");
    write(&text(&[1, 2], ""));
    let (shared, mut watcher) = watched(&file);
    assert_eq!(after(3, &shared, &mut watcher), (0, 0, 2));
    // the first part of a file is a file
    write(&whole[..whole.rfind("[[").unwrap()]);
    write(&whole[..whole.rfind("url").unwrap()]);
    assert_eq!(after(1, &shared, &mut watcher), (0, 0, 2));
    write(&whole);
    assert_eq!(after(1, &shared, &mut watcher), (0, 0, 2));
    assert_eq!(after(1, &shared, &mut watcher), (1, 0, 3));
    assert_eq!(after(5, &shared, &mut watcher), (1, 0, 3));
    // refused once, not at every look
    write(&text(&[1], "share = -1.0"));
    assert_eq!(after(5, &shared, &mut watcher), (1, 1, 3));
    assert!(!shared.reloads.last_was_taken());
    // back to what runs: nothing is to be done
    write(&whole);
    assert_eq!(after(5, &shared, &mut watcher), (1, 1, 3));
    assert!(shared.reloads.last_was_taken());
    // gone for a moment, as some editors have it
    std::fs::remove_file(&file).unwrap();
    assert_eq!(after(3, &shared, &mut watcher), (1, 1, 3));
    write(&text(&[7], ""));
    assert_eq!(after(2, &shared, &mut watcher), (2, 1, 1));
    assert!(shared.reloads.last_was_taken());
}

#[test]
fn what_was_read_another_way_is_not_read_twice_and_a_named_file_counts() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    let key = dir.path().join("key");
    std::fs::write(&key, "one").unwrap();
    let more = format!("engine_key = \"file:{}\"", key.display());
    std::fs::write(&file, text(&[1], &more)).unwrap();
    let (shared, mut watcher) = watched(&file);
    std::fs::write(&file, text(&[1, 2], &more)).unwrap();
    shared.reload("a test").unwrap();
    assert_eq!(after(3, &shared, &mut watcher), (1, 0, 2));
    std::fs::write(&key, "another").unwrap();
    assert_eq!(after(3, &shared, &mut watcher), (2, 0, 2));
    std::fs::remove_file(&key).unwrap();
    assert_eq!(after(3, &shared, &mut watcher), (2, 1, 2));
}

#[test]
fn without_a_file_there_is_nothing_to_read_again() {
    let config = config::parse(&text(&[1], ""), "test.toml").unwrap();
    let shared = shared(&Arc::new(config), None).unwrap();
    assert!(matches!(shared.reload("a test"), Err(NotTaken::NoFile)));
}
