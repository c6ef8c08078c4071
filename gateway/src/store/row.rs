//! A row as it comes from either engine, read column after column.

use super::fault::Misfit;
use bytes::Bytes;
use portcullis_policy::canonical::Digest;

/// A column.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Column {
    Text(String),
    Big(i64),
    Bytes(Bytes),
    Null,
}

/// A row. Reading takes its columns in the order of the statement.
#[derive(Debug)]
pub(super) struct Row {
    columns: std::vec::IntoIter<Column>,
}

impl Row {
    pub(super) fn new(columns: Vec<Column>) -> Self {
        Self { columns: columns.into_iter() }
    }

    fn next(&mut self) -> Result<Column, Misfit> {
        self.columns.next().ok_or_else(|| Misfit("a row has too few columns".to_owned()))
    }

    pub(super) fn text(&mut self) -> Result<String, Misfit> {
        self.text_or_null()?.ok_or_else(|| misfit("a text", &Column::Null))
    }

    pub(super) fn text_or_null(&mut self) -> Result<Option<String>, Misfit> {
        match self.next()? {
            Column::Text(text) => Ok(Some(text)),
            Column::Null => Ok(None),
            other @ (Column::Big(_) | Column::Bytes(_)) => Err(misfit("a text", &other)),
        }
    }

    pub(super) fn big(&mut self) -> Result<u64, Misfit> {
        self.big_or_null()?.ok_or_else(|| misfit("a number", &Column::Null))
    }

    pub(super) fn big_or_null(&mut self) -> Result<Option<u64>, Misfit> {
        let number = self.signed_or_null()?;
        Ok(number.map(|number| u64::try_from(number).unwrap_or_default()))
    }

    pub(super) fn signed(&mut self) -> Result<i64, Misfit> {
        self.signed_or_null()?.ok_or_else(|| misfit("a number", &Column::Null))
    }

    fn signed_or_null(&mut self) -> Result<Option<i64>, Misfit> {
        match self.next()? {
            Column::Big(number) => Ok(Some(number)),
            Column::Null => Ok(None),
            other @ (Column::Text(_) | Column::Bytes(_)) => Err(misfit("a number", &other)),
        }
    }

    pub(super) fn flag(&mut self) -> Result<bool, Misfit> {
        Ok(self.big()? != 0)
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes, Misfit> {
        self.bytes_or_null()?.ok_or_else(|| misfit("bytes", &Column::Null))
    }

    fn bytes_or_null(&mut self) -> Result<Option<Bytes>, Misfit> {
        match self.next()? {
            Column::Bytes(bytes) => Ok(Some(bytes)),
            Column::Null => Ok(None),
            other @ (Column::Text(_) | Column::Big(_)) => Err(misfit("bytes", &other)),
        }
    }

    pub(super) fn hash(&mut self) -> Result<[u8; 32], Misfit> {
        hash(&self.bytes()?)
    }

    pub(super) fn hash_or_null(&mut self) -> Result<Option<[u8; 32]>, Misfit> {
        self.bytes_or_null()?.map(|bytes| hash(&bytes)).transpose()
    }

    pub(super) fn digest(&mut self) -> Result<Digest, Misfit> {
        digest(&self.text()?)
    }

    pub(super) fn digest_or_null(&mut self) -> Result<Option<Digest>, Misfit> {
        self.text_or_null()?.map(|text| digest(&text)).transpose()
    }
}

fn misfit(wanted: &str, column: &Column) -> Misfit {
    let found = match column {
        Column::Text(_) => "a text",
        Column::Big(_) => "a number",
        Column::Bytes(_) => "bytes",
        Column::Null => "nothing",
    };
    Misfit(format!("a row has {found} where it should have {wanted}"))
}

fn hash(bytes: &[u8]) -> Result<[u8; 32], Misfit> {
    bytes.try_into().map_err(|_| Misfit(format!("a hash has {} bytes, not 32", bytes.len())))
}

fn digest(text: &str) -> Result<Digest, Misfit> {
    Digest::parse(text).ok_or_else(|| Misfit(format!("`{text}` is no digest")))
}
