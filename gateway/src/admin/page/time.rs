//! Times as people read them. A script in the page keeps them true.

use super::super::runs::wall;

const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Less time than this is shown as urgent.
const URGENT_MS: u64 = 2 * MINUTE_MS;

/// A moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Moment {
    /// RFC 3339.
    pub(super) at: String,
    /// Such as `3 min ago` or `9 min left`.
    pub(super) text: String,
    /// True for a limit that is near.
    pub(super) urgent: bool,
}

impl Moment {
    /// A moment in the past.
    pub(super) fn past(at_ms: u64, now_ms: u64) -> Self {
        let text = match now_ms.saturating_sub(at_ms) {
            0..MINUTE_MS => "just now".to_owned(),
            ms => format!("{} ago", rough(ms)),
        };
        Self { at: wall(at_ms), text, urgent: false }
    }

    /// A moment that is `left_ms` from now.
    pub(super) fn ahead(left_ms: u64, now_ms: u64) -> Self {
        let text = match left_ms {
            0 => "time is over".to_owned(),
            ms => format!("{} left", rough(ms)),
        };
        Self { at: wall(now_ms.saturating_add(left_ms)), text, urgent: left_ms < URGENT_MS }
    }
}

/// A time in its largest unit, rounded down.
pub(super) fn rough(ms: u64) -> String {
    let (count, unit) = match ms {
        0..MINUTE_MS => (ms / SECOND_MS, "s"),
        MINUTE_MS..HOUR_MS => (ms / MINUTE_MS, "min"),
        HOUR_MS..DAY_MS => (ms / HOUR_MS, "h"),
        _ => (ms / DAY_MS, "d"),
    };
    format!("{count} {unit}")
}

/// A size, in bytes up to a few of them.
pub(super) fn size(bytes: usize) -> String {
    match bytes {
        1 => "1 byte".to_owned(),
        0..10_240 => format!("{bytes} bytes"),
        _ => format!("{} KiB", bytes / 1024),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_read_like_speech() {
        let now = 10 * DAY_MS;
        let past = |ms: u64| Moment::past(now - ms, now).text;
        assert_eq!(
            [past(0), past(61_000), past(3 * HOUR_MS + 5), past(2 * DAY_MS)],
            ["just now", "1 min ago", "3 h ago", "2 d ago"]
        );
        let ahead = Moment::ahead(90_000, now);
        assert_eq!((ahead.text.as_str(), ahead.urgent), ("1 min left", true));
        assert!(!Moment::ahead(URGENT_MS, now).urgent);
        assert_eq!(Moment::ahead(0, now).text, "time is over");
        assert_eq!([size(1), size(900), size(20_480)], ["1 byte", "900 bytes", "20 KiB"]);
    }
}
