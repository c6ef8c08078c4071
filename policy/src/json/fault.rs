//! Limits of what is read, and why a text was refused.

/// Caps on what is read. Depth and members also bound the memory a scan may use.
#[derive(Debug, Clone, Copy)]
pub struct JsonLimits {
    /// Deepest nesting of arrays and objects.
    pub depth_max: usize,
    /// Most members and elements in the whole text.
    pub items_max: usize,
    /// Longest number, in bytes.
    pub number_bytes_max: usize,
}

impl Default for JsonLimits {
    fn default() -> Self {
        Self { depth_max: 64, items_max: 200_000, number_bytes_max: 400 }
    }
}

/// Why a text was refused, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault} at byte {at}")]
pub struct JsonError {
    /// What is wrong.
    pub fault: JsonFault,
    /// Offset of the fault in bytes.
    pub at: usize,
}

/// The kinds of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonFault {
    /// The bytes are not UTF-8.
    #[error("the text is not UTF-8")]
    Utf8,
    /// The text ends too early.
    #[error("the text ends too early")]
    End,
    /// A character that JSON does not allow here.
    #[error("unexpected character")]
    Character,
    /// Something follows the value.
    #[error("something follows the value")]
    Trailing,
    /// A bad escape or a lone surrogate in a string.
    #[error("bad escape in a string")]
    Escape,
    /// A control character inside a string.
    #[error("control character in a string")]
    Control,
    /// A number that JSON does not allow, or a longer one than allowed.
    #[error("bad or too long number")]
    Number,
    /// Two members of one object decode to the same name.
    #[error("duplicate member name")]
    Duplicate,
    /// Nesting beyond the cap.
    #[error("nested too deeply")]
    Depth,
    /// More members and elements than the cap.
    #[error("too many members")]
    Items,
    /// A value of another type than the reader needs.
    #[error("value of the wrong type")]
    Type,
    /// The caller of the reader refused what it read.
    #[error("refused")]
    Refused,
}
