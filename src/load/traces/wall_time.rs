//! Wall time as traces write it: `2023-11-16 18:17:03.9799600`, with or without `T` and a zone.

use super::numbers::shown;

const DAY_S: i64 = 86_400;

/// Nanoseconds since the Unix epoch; without a zone the time is taken as UTC.
pub(super) fn parse_ns(field: &str, text: &str) -> Result<i64, String> {
    read(text).ok_or_else(|| {
        let found = shown(text);
        format!("{field} is {found:?}: a time such as 2023-11-16 18:17:03.9799600 is wanted, from 1970 to 2200")
    })
}

fn read(text: &str) -> Option<i64> {
    let (day, time) = text.split_once([' ', 'T'])?;
    let (clock, zone_s) = split_zone(time)?;
    let (whole, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let seconds = days_since_1970(day)? * DAY_S + seconds_of_day(whole)? - zone_s;
    Some(seconds * 1_000_000_000 + fraction_ns(fraction, clock.contains('.'))?)
}

/// Exactly so many digits.
fn digits(text: &str, count: usize) -> Option<i64> {
    let fits = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    fits.then(|| text.parse().ok())?
}

fn days_since_1970(day: &str) -> Option<i64> {
    let mut parts = day.split('-');
    let (year, month, day) = (
        digits(parts.next()?, 4)?,
        digits(parts.next()?, 2)?,
        digits(parts.next()?, 2)?,
    );
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let february = if leap { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = *lengths.get(usize::try_from(month - 1).ok()?)?;
    if parts.next().is_some() || !(1970..2200).contains(&year) || !(1..=length).contains(&day) {
        return None;
    }
    let before = year - 1;
    let leap_days = |year: i64| year / 4 - year / 100 + year / 400;
    let years = (year - 1970) * 365 + leap_days(before) - leap_days(1969);
    let months: i64 = lengths[..month as usize - 1].iter().sum();
    Some(years + months + day - 1)
}

fn seconds_of_day(clock: &str) -> Option<i64> {
    let mut parts = clock.split(':');
    let (hour, minute, second) = (
        digits(parts.next()?, 2)?,
        digits(parts.next()?, 2)?,
        digits(parts.next()?, 2)?,
    );
    let fits = parts.next().is_none() && hour < 24 && minute < 60 && second < 60;
    fits.then_some(hour * 3600 + minute * 60 + second)
}

fn fraction_ns(fraction: &str, has_point: bool) -> Option<i64> {
    if !has_point {
        return Some(0);
    }
    let fits = (1..=9).contains(&fraction.len());
    let value = fits.then(|| digits(fraction, fraction.len()))??;
    Some(value * 10_i64.pow(9 - fraction.len() as u32))
}

/// The time without its zone, and the zone in seconds east of UTC.
fn split_zone(time: &str) -> Option<(&str, i64)> {
    if let Some(clock) = time.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let Some(at) = time.find(['+', '-']) else {
        return Some((time, 0));
    };
    let (clock, zone) = time.split_at(at);
    let zone_digits = zone[1..].replacen(':', "", 1);
    let value = match zone_digits.len() {
        2 => digits(&zone_digits, 2)? * 100,
        _ => digits(&zone_digits, 4)?,
    };
    let (hours, minutes) = (value / 100, value % 100);
    let east_s = (hours < 24 && minutes < 60).then_some(hours * 3600 + minutes * 60)?;
    Some((
        clock,
        if zone.starts_with('-') {
            -east_s
        } else {
            east_s
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_the_calendar_has_them() {
        let right = [
            ("1970-01-01 00:00:00", 0),
            ("2023-11-16 18:17:03.9799600", 1_700_158_623_979_960_000),
            ("2023-11-16T18:17:03.97996Z", 1_700_158_623_979_960_000),
            ("2023-11-16 20:17:03.97996+02:00", 1_700_158_623_979_960_000),
            ("2023-11-16 12:47:03.97996-0530", 1_700_158_623_979_960_000),
            ("2024-02-29 00:00:00+00", 1_709_164_800_000_000_000),
            ("2000-03-01 00:00:00.000000001", 951_868_800_000_000_001),
        ];
        for (text, ns) in right {
            assert_eq!(parse_ns("t", text), Ok(ns), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        let wrong = [
            "",
            "noon",
            "2023-11-16",
            "2023-02-29 00:00:00",
            "2023-13-01 00:00:00",
            "2023-00-01 00:00:00",
            "2023-11-16 24:00:00",
            "2023-11-16 18:60:00",
            "2023-11-16 18:17",
            "2023-11-16 18:17:03.",
            "2023-11-16 18:17:03.1234567890",
            "0001-01-01 00:00:00",
            "2023-11-16 18:17:03+25:00",
            "2023-11-16 18:17:-3",
            "2023-11-16 18:17:03 ü",
            "2023-11-16-1 00:00:00",
            "+023-11-16 00:00:00",
        ];
        for text in wrong {
            assert!(parse_ns("t", text).is_err(), "{text}");
        }
    }
}
