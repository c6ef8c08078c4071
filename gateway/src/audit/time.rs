//! Wall time as RFC 3339 text. Only for people and records: no deadline is computed from it.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY_SECONDS: u64 = 86_400;

/// `time` in UTC with microseconds, such as `2026-07-28T09:30:00.000125Z`.
#[must_use]
pub fn rfc3339(time: SystemTime) -> String {
    let mut out = Vec::with_capacity(27);
    write_rfc3339(&mut out, time);
    String::from_utf8(out).unwrap_or_default()
}

/// Reads the UTC times that [`rfc3339`] writes, with any number of digits after the second, and
/// a date alone, which is its first moment.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<SystemTime> {
    let (date, time) = match text.split_once(['T', 't']) {
        Some((date, time)) => (date, time.strip_suffix(['Z', 'z'])?),
        None => (text, "00:00:00"),
    };
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let (whole, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(whole, ':', [2, 2, 2])?;
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let in_range = year >= 1970
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !in_range {
        return None;
    }
    let days = days_of(year, month, day);
    if civil(days) != (year, month, day) {
        return None;
    }
    let seconds = days * DAY_SECONDS + hour * 3_600 + minute * 60 + second;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

pub(super) fn write_rfc3339(out: &mut Vec<u8>, time: SystemTime) {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, rest) = (since.as_secs() / DAY_SECONDS, since.as_secs() % DAY_SECONDS);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    let micros = since.subsec_micros();
    // Writing into a Vec cannot fail.
    let _ =
        write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z");
}

fn numbers(text: &str, separator: char, widths: [usize; 3]) -> Option<[u64; 3]> {
    let mut parts = text.split(separator);
    let mut out = [0; 3];
    for (number, width) in out.iter_mut().zip(widths) {
        let part = parts.next()?;
        if part.len() != width || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(out)
}

// The calendar as eras of 400 years that begin on the first of March, so that the leap day is
// the last one of its year.
fn civil(days_since_1970: u64) -> (u64, u64, u64) {
    let days = days_since_1970 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

fn days_of(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let (era, of_era) = (year / 400, year % 400);
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * shifted + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_and_read_back() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (1_785_231_045, "2026-07-28T09:30:45.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(rfc3339(time), text);
            assert_eq!(parse_rfc3339(text), Some(time), "{text}");
        }
        let date = parse_rfc3339("2026-07-28").unwrap();
        assert_eq!(rfc3339(date), "2026-07-28T00:00:00.000000Z");
    }

    #[test]
    fn what_is_no_time_is_not_guessed_at() {
        for bad in [
            "",
            "tomorrow",
            "2026-02-30",
            "2026-13-01",
            "2026-1-1",
            "1969-12-31",
            "20260728",
            "2026-07-28T24:00:00Z",
            "2026-07-28T10:00:00",
            "2026-07-28T10:00:00+02:00",
            "2026-07-28T10:00:00.xZ",
            "2026-07-28-01",
        ] {
            assert_eq!(parse_rfc3339(bad), None, "{bad}");
        }
    }
}
