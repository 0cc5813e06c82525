//! Wall time as it stands in file names and in the description of a run.

use super::clock::wall_ns;

/// Now as `20240131T235959` in UTC.
pub fn utc_now() -> String {
    utc_stamp(wall_ns() / 1_000_000_000)
}

/// Then as `2024-01-31 23:59:59 UTC`, from nanoseconds since the epoch.
pub fn utc_words(since_epoch_ns: u64) -> String {
    let stamp = utc_stamp(since_epoch_ns / 1_000_000_000);
    let part = |from: usize, to: usize| stamp.get(from..to).unwrap_or_default();
    let (year, month, day) = (part(0, 4), part(4, 6), part(6, 8));
    let (hour, minute, second) = (part(9, 11), part(11, 13), part(13, 15));
    format!("{year}-{month}-{day} {hour}:{minute}:{second} UTC")
}

/// `20240131T235959` in UTC, from seconds since the epoch. Days to date after Howard Hinnant.
fn utc_stamp(since_epoch_s: u64) -> String {
    let (days, second) = (since_epoch_s / 86_400, since_epoch_s % 86_400);
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 {
        month_shifted + 3
    } else {
        month_shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_utc_dates() {
        assert_eq!(utc_stamp(0), "19700101T000000");
        assert_eq!(utc_stamp(951_782_399), "20000228T235959");
        assert_eq!(utc_stamp(951_782_400), "20000229T000000");
        assert_eq!(utc_stamp(1_700_000_000), "20231114T221320");
        assert_eq!(
            utc_words(1_700_000_000 * 1_000_000_000),
            "2023-11-14 22:13:20 UTC"
        );
    }
}
