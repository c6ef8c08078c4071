//! Random arguments of calls, written as agents may write them, and the one form in which they
//! are to be shown, digested and sent; written once more, by hand, to compare with.

use std::collections::BTreeMap;

/// Numbers that a parser likes to change.
const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "-0.0",
    "1.0",
    "1",
    "1e400",
    "-1E-400",
    "1E+2",
    "0.1",
    "9007199254740993",
    "-9007199254740993",
    "18446744073709551616",
    "123456789012345678901234567890.123456789012345678901234567890",
    "5e-324",
    "0e0",
    "100000000000000000001",
];

/// Characters that a writer likes to change, or that are not seen.
const CHARACTERS: &[char] = &[
    'a',
    'Z',
    '0',
    ' ',
    '"',
    '\\',
    '/',
    '\u{8}',
    '\u{c}',
    '\n',
    '\r',
    '\t',
    '\0',
    '\u{1b}',
    '\u{1f}',
    '\u{7f}',
    '\u{80}',
    'é',
    'ö',
    '€',
    '\u{301}',
    '\u{200b}',
    '\u{202e}',
    '\u{2028}',
    '\u{2066}',
    '\u{e000}',
    '\u{fb33}',
    '\u{feff}',
    '\u{fffd}',
    '\u{ffff}',
    '漢',
    '😀',
    '𝒳',
    '\u{e0041}',
    '\u{10ffff}',
    'ſ',
    'K',
    '<',
    '&',
    '{',
];

/// Where chance comes from: the same seed gives the same arguments.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Begins at `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `below`, which is not zero.
    pub fn below(&mut self, below: usize) -> usize {
        // SplitMix64: short, and even enough for this.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let wide = u128::from(z ^ (z >> 31)) * below as u128;
        usize::try_from(wide >> 64).unwrap_or_default()
    }

    fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T], instead: T) -> T {
        from.get(self.below(from.len().max(1))).copied().unwrap_or(instead)
    }
}

/// A JSON value with its numbers as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tree {
    /// `null`, `true`, `false` or a number, as written.
    Plain(String),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Tree>),
    /// An object; the order of its members means nothing.
    Object(BTreeMap<String, Tree>),
}

impl Tree {
    /// Arguments: an object.
    #[must_use]
    pub fn arguments(dice: &mut Dice) -> Self {
        // Now and then almost as deep as a text may be.
        if dice.one_in(64) {
            let mut tree = Self::value(dice, 1);
            for _ in 0..dice.below(56) {
                tree = match dice.below(2) {
                    0 => Self::List(vec![tree]),
                    _ => Self::Object([(text(dice), tree)].into()),
                };
            }
            return Self::Object([(text(dice), tree)].into());
        }
        Self::object(dice, 3)
    }

    fn object(dice: &mut Dice, depth: usize) -> Self {
        let members = (0..dice.below(5)).map(|_| (text(dice), Self::value(dice, depth))).collect();
        Self::Object(members)
    }

    fn value(dice: &mut Dice, depth: usize) -> Self {
        match dice.below(if depth == 0 { 4 } else { 6 }) {
            0 => Self::Plain(dice.pick(&["null", "true", "false"], "null").to_owned()),
            1 => Self::Plain(number(dice)),
            2 | 3 => Self::Text(text(dice)),
            4 => Self::List((0..dice.below(4)).map(|_| Self::value(dice, depth - 1)).collect()),
            _ => Self::object(dice, depth - 1),
        }
    }

    /// As an agent may write it: members in any order, white space and escapes anywhere.
    #[must_use]
    pub fn sloppy(&self, dice: &mut Dice) -> String {
        let mut out = String::new();
        self.write_sloppy(&mut out, dice);
        out
    }

    fn write_sloppy(&self, out: &mut String, dice: &mut Dice) {
        blank(out, dice);
        match self {
            Self::Plain(plain) => out.push_str(plain),
            Self::Text(text) => escaped(out, text, dice),
            Self::List(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    comma(out, at);
                    item.write_sloppy(out, dice);
                }
                out.push(']');
            }
            Self::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                for at in (1..members.len()).rev() {
                    members.swap(at, dice.below(at + 1));
                }
                out.push('{');
                for (at, (name, value)) in members.into_iter().enumerate() {
                    comma(out, at);
                    blank(out, dice);
                    escaped(out, name, dice);
                    blank(out, dice);
                    out.push(':');
                    value.write_sloppy(out, dice);
                }
                out.push('}');
            }
        }
        blank(out, dice);
    }

    /// The one form: no white space, members by their UTF-16 units, the escapes of RFC 8785,
    /// numbers as written.
    #[must_use]
    pub fn canonical(&self) -> String {
        match self {
            Self::Plain(plain) => plain.clone(),
            Self::Text(text) => quoted(text),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(Self::canonical).collect();
                format!("[{}]", items.join(","))
            }
            Self::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                members.sort_by_key(|(name, _)| name.encode_utf16().collect::<Vec<_>>());
                let member = |(name, value): (&String, &Self)| {
                    format!("{}:{}", quoted(name), value.canonical())
                };
                let members: Vec<String> = members.into_iter().map(member).collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }

    /// The same with a member of some object in it written twice, the second time with other
    /// escapes; `None` if it has no member.
    #[must_use]
    pub fn with_a_member_twice(&self, dice: &mut Dice) -> Option<String> {
        let Self::Object(members) = self else { return None };
        let names: Vec<&String> = members.keys().collect();
        let name = names.get(dice.below(names.len().max(1)))?;
        let inner = members.get(*name)?;
        if let Some(deeper) = inner.with_a_member_twice(dice)
            && dice.one_in(2)
        {
            return Some(format!("{{{}:{deeper}}}", quoted(name)));
        }
        let mut again = String::new();
        escaped(&mut again, name, dice);
        let rest = self.sloppy(dice);
        let rest = rest.trim_start().strip_prefix('{')?;
        Some(format!("{{{again}:{},{rest}", inner.sloppy(dice)))
    }
}

fn number(dice: &mut Dice) -> String {
    if dice.one_in(2) {
        return dice.pick(NUMBERS, "0").to_owned();
    }
    let digits = |dice: &mut Dice, most: usize| -> String {
        let digits = 1 + dice.below(most);
        (0..digits).map(|_| char::from(b'0' + u8::try_from(dice.below(10)).unwrap_or(0))).collect()
    };
    let sign = if dice.one_in(3) { "-" } else { "" };
    let whole = digits(dice, 30);
    let whole = whole.trim_start_matches('0');
    let mut number = format!("{sign}{}", if whole.is_empty() { "0" } else { whole });
    if dice.one_in(3) {
        number += &format!(".{}", digits(dice, 20));
    }
    if dice.one_in(3) {
        let exponent = dice.pick(&["e", "E", "e+", "E-"], "e");
        number += &format!("{exponent}{}", digits(dice, 3));
    }
    number
}

fn text(dice: &mut Dice) -> String {
    // Long enough now and then for every way to fold it.
    let most = if dice.one_in(50) { 400 } else { 9 };
    (0..dice.below(most)).map(|_| dice.pick(CHARACTERS, 'a')).collect()
}

fn comma(out: &mut String, at: usize) {
    if at > 0 {
        out.push(',');
    }
}

fn blank(out: &mut String, dice: &mut Dice) {
    while dice.one_in(4) {
        out.push(dice.pick(&[' ', '\t', '\n', '\r'], ' '));
    }
}

// Each character as itself where it may stand so, or by one of its escapes.
fn escaped(out: &mut String, text: &str, dice: &mut Dice) {
    out.push('"');
    for c in text.chars() {
        let must = c < ' ' || c == '"' || c == '\\';
        let short = short(c).or((c == '/').then_some('/'));
        match short {
            Some(short) if dice.one_in(2) => out.extend(['\\', short]),
            _ if must || dice.one_in(6) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&escape(*unit, dice));
                }
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}

fn escape(unit: u16, dice: &mut Dice) -> String {
    if dice.one_in(2) { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") }
}

fn short(c: char) -> Option<char> {
    Some(match c {
        '"' => '"',
        '\\' => '\\',
        '\u{8}' => 'b',
        '\u{c}' => 'f',
        '\n' => 'n',
        '\r' => 'r',
        '\t' => 't',
        _ => return None,
    })
}

fn quoted(text: &str) -> String {
    let inner = text.chars().map(|c| match short(c) {
        Some(short) => format!("\\{short}"),
        None if c < ' ' => format!("\\u{:04x}", u32::from(c)),
        None => c.to_string(),
    });
    format!("\"{}\"", inner.collect::<String>())
}
