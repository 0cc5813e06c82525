//! The `model` field of a multipart form (audio requests). Pure.

use memchr::memmem;

use super::skim::MODEL_BYTES_MAX;

/// Value of the form field `model`, if the body's beginning holds it whole.
pub fn model_field(content_type: &str, body_prefix: &[u8]) -> Option<String> {
    let boundary = boundary(content_type)?;
    let mark = format!("--{boundary}");
    let mut rest = body_prefix;
    loop {
        rest = &rest[memmem::find(rest, mark.as_bytes())? + mark.len()..];
        let head_end = memmem::find(rest, b"\r\n\r\n")?;
        let (head, value) = (&rest[..head_end], &rest[head_end + 4..]);
        if is_model(head) {
            let end = memmem::find(value, format!("\r\n{mark}").as_bytes())?;
            let value = std::str::from_utf8(&value[..end]).ok()?.trim();
            return (!value.is_empty() && value.len() <= MODEL_BYTES_MAX).then(|| value.to_owned());
        }
        rest = value;
    }
}

fn boundary(content_type: &str) -> Option<&str> {
    let (kind, parameters) = content_type.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let boundary = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("boundary")
            .then(|| value.trim().trim_matches('"'))
    })?;
    // RFC 2046: at most 70 characters
    (1..=70).contains(&boundary.len()).then_some(boundary)
}

fn is_model(head: &[u8]) -> bool {
    let Ok(head) = std::str::from_utf8(head) else {
        return false;
    };
    head.lines().any(|line| {
        let Some((name, value)) = line.split_once(':') else {
            return false;
        };
        name.trim().eq_ignore_ascii_case("content-disposition")
            && value
                .split(';')
                .any(|word| matches!(word.trim(), "name=\"model\"" | "name=model"))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TYPE: &str = "multipart/form-data; boundary=\"xYz\"";

    #[test]
    fn the_model_is_found_behind_a_file_that_mentions_it() {
        let body = b"--xYz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\
            Content-Type: audio/wav\r\n\r\nRIFF name=\"model\"\r\n\r\n\x00\xff\r\n\
            --xYz\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--xYz--\r\n";
        assert_eq!(model_field(TYPE, body).as_deref(), Some("whisper-1"));
    }

    #[test]
    fn a_field_cut_by_the_prefix_or_another_type_is_none() {
        let body = b"--xYz\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisp";
        assert_eq!(model_field(TYPE, body), None);
        let whole = b"--xYz\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--xYz--";
        assert_eq!(model_field("application/json", whole), None);
        assert_eq!(model_field("multipart/form-data", whole), None);
        assert_eq!(model_field(TYPE, whole).as_deref(), Some("m"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(kind in ".*", body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = model_field(&kind, &body);
            let _ = model_field(TYPE, &body);
        }
    }
}
