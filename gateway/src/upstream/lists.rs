//! Reads what a server offers. Everything it can send is capped; what is left out is named in
//! the offer's problems, so that a partial list never looks like a whole one.

use crate::upstream::frame;
use crate::upstream::link::{Fault, Link};
use crate::upstream::message::{Failure, Outgoing, Reply};
use crate::upstream::session::{Complaint, cut};
use bytes::Bytes;
use portcullis_policy::catalogue::{EntryOffer, Offer, Status, ToolOffer};
use portcullis_policy::json::{Kind, decode, kind_of, quote};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a server may take for one page of a list.
const PAGE_WITHIN: Duration = Duration::from_secs(15);
/// How long a server may take for all pages of one list.
const LIST_WITHIN: Duration = Duration::from_secs(45);
/// Most pages of one list.
const PAGES_MAX: usize = 1000;
/// Most bytes of all pages of one list.
const LIST_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most resources, templates or prompts of one server, each.
const ENTRIES_MAX: usize = 10_000;
/// Most problems that are told about one server.
const PROBLEMS_MAX: usize = 100;
/// Longest time a list is used without asking again, where the server does not tell of changes.
pub(crate) const FRESH_FOR: Duration = Duration::from_secs(60);
/// Shortest such time, whatever the server says.
const FRESH_AT_LEAST: Duration = Duration::from_secs(5);

/// What a server offers and how long that may be used.
#[derive(Debug)]
pub(crate) struct Listing {
    /// The offer.
    pub(crate) offer: Offer,
    /// Until it is asked again.
    pub(crate) fresh_for: Duration,
}

/// Reads all lists of the server behind `link`. Tools that did not change are taken over from
/// `before`.
pub(crate) async fn read(link: &Link, before: &Offer, tools_max: usize) -> Result<Listing, Fault> {
    let has = link.session.capabilities;
    let mut lists = Lists { link, problems: Vec::new(), ttl: None };
    let mut offer = Offer { status: Status::Ready, completes: has.completions, ..Offer::default() };
    if has.tools {
        let raw = lists.pages("tools/list", "tools", tools_max).await?;
        offer.tools = lists.tools(&raw, before);
    }
    if has.resources {
        offer.resources = lists.entries("resources/list", "resources", "uri").await?;
        let templates =
            lists.entries("resources/templates/list", "resourceTemplates", "uriTemplate");
        offer.templates = templates.await?;
    }
    if has.prompts {
        offer.prompts = lists.entries("prompts/list", "prompts", "name").await?;
    }
    let fresh_for = lists.ttl.unwrap_or(FRESH_FOR).clamp(FRESH_AT_LEAST, FRESH_FOR);
    offer.problems = lists.problems;
    Ok(Listing { offer, fresh_for })
}

/// True if both offer the same, so that nobody need hear of it.
pub(crate) fn same(a: &Offer, b: &Offer) -> bool {
    let tools = |offer: &Offer| offer.tools.iter().map(|tool| Arc::clone(&tool.json)).collect();
    let entries = |entries: &[Arc<EntryOffer>]| -> Vec<Arc<str>> {
        entries.iter().map(|entry| Arc::clone(&entry.json)).collect()
    };
    let (tools_a, tools_b): (Vec<Arc<str>>, Vec<Arc<str>>) = (tools(a), tools(b));
    a.status == b.status
        && a.completes == b.completes
        && a.problems == b.problems
        && tools_a == tools_b
        && entries(&a.resources) == entries(&b.resources)
        && entries(&a.templates) == entries(&b.templates)
        && entries(&a.prompts) == entries(&b.prompts)
}

struct Lists<'a> {
    link: &'a Link,
    problems: Vec<String>,
    ttl: Option<Duration>,
}

#[derive(Default)]
struct Page {
    entries: Vec<Bytes>,
    cursor: Option<String>,
    ttl: Option<Duration>,
}

impl Lists<'_> {
    // A list whose loss leaves the rest useful: a failure of the server's is a problem, one of
    // the connection is a fault.
    async fn entries(
        &mut self,
        method: &'static str,
        member: &'static str,
        key: &'static str,
    ) -> Result<Vec<Arc<EntryOffer>>, Fault> {
        let raw = match self.pages(method, member, ENTRIES_MAX).await {
            Ok(raw) => raw,
            Err(Fault::Failed(failure @ (Failure::Refused(_) | Failure::Timeout(_)))) => {
                self.problem(&format!("`{method}` failed: {failure}"));
                return Ok(Vec::new());
            }
            Err(fault) => return Err(fault),
        };
        let mut entries = Vec::with_capacity(raw.len());
        for json in &raw {
            match EntryOffer::parse(&String::from_utf8_lossy(json), key, frame::limits()) {
                Ok(entry) => entries.push(Arc::new(entry)),
                Err(error) => self.problem(&format!("`{method}`: {error}")),
            }
        }
        Ok(entries)
    }

    fn tools(&mut self, raw: &[Bytes], before: &Offer) -> Vec<Arc<ToolOffer>> {
        let known: BTreeMap<&str, &Arc<ToolOffer>> =
            before.tools.iter().map(|tool| (&*tool.json, tool)).collect();
        let mut tools = Vec::with_capacity(raw.len());
        for json in raw {
            // Frames were checked to be UTF-8.
            let json = String::from_utf8_lossy(json);
            if let Some(tool) = known.get(&*json) {
                tools.push(Arc::clone(tool));
                continue;
            }
            match ToolOffer::parse(&json, frame::limits()) {
                Ok(tool) => tools.push(Arc::new(tool)),
                Err(error) => self.problem(&format!("`tools/list`: {error}")),
            }
        }
        tools
    }

    async fn pages(
        &mut self,
        method: &'static str,
        member: &'static str,
        entries_max: usize,
    ) -> Result<Vec<Bytes>, Fault> {
        let end = Instant::now() + LIST_WITHIN;
        let mut entries: Vec<Bytes> = Vec::new();
        let mut seen = BTreeSet::new();
        let mut cursor: Option<String> = None;
        let mut bytes = 0_usize;
        loop {
            let page = match self.page(method, member, cursor.as_deref(), end).await {
                Ok(page) => page,
                Err(fault) if entries.is_empty() => return Err(fault),
                Err(fault) => {
                    let failure = fault.into_failure();
                    self.problem(&format!(
                        "`{method}` ends early, after {} entries: {failure}",
                        entries.len()
                    ));
                    return Ok(entries);
                }
            };
            bytes += page.entries.iter().map(Bytes::len).sum::<usize>();
            entries.extend(page.entries);
            self.ttl = match (self.ttl, page.ttl) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            let stop = match page.cursor {
                _ if entries.len() > entries_max => {
                    format!("it has more than {entries_max} entries")
                }
                _ if bytes > LIST_BYTES_MAX => format!("it has more than {LIST_BYTES_MAX} bytes"),
                None => return Ok(entries),
                Some(next) if seen.contains(&next) => "the server repeats a cursor".to_owned(),
                Some(_) if seen.len() + 1 >= PAGES_MAX => {
                    format!("it has more than {PAGES_MAX} pages")
                }
                Some(next) => {
                    seen.insert(next.clone());
                    cursor = Some(next);
                    continue;
                }
            };
            entries.truncate(entries_max);
            self.problem(&format!("`{method}` is cut after {} entries: {stop}", entries.len()));
            return Ok(entries);
        }
    }

    async fn page(
        &self,
        method: &'static str,
        member: &'static str,
        cursor: Option<&str>,
        end: Instant,
    ) -> Result<Page, Fault> {
        let mut asked = Outgoing::own(method);
        if let Some(cursor) = cursor {
            asked = asked.with("cursor", quote(cursor));
        }
        let deadline = end.min(Instant::now() + PAGE_WITHIN);
        match self.link.ask(&asked, deadline).await? {
            Reply::Result(result) => page(&result, member).ok_or_else(|| {
                Failure::Refused(format!("the answer has no list `{member}`")).into()
            }),
            Reply::Error(error) => {
                let complaint = Complaint::read(&error);
                Err(Failure::Refused(format!("error {} {}", complaint.code, complaint.message))
                    .into())
            }
        }
    }

    fn problem(&mut self, text: &str) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(cut(text));
        }
    }
}

fn page(result: &Bytes, member: &str) -> Option<Page> {
    let mut page = Page::default();
    let mut list = None;
    frame::members(result, |name, raw| match name {
        _ if name == member => list = Some(raw),
        "nextCursor" => page.cursor = decode(raw).map(std::borrow::Cow::into_owned),
        "ttlMs" => page.ttl = raw.parse().ok().map(Duration::from_millis),
        _ => {}
    })
    .ok()?;
    let list = list.filter(|raw| kind_of(raw) == Kind::Array)?;
    frame::elements(list, |raw| page.entries.push(result.slice_ref(raw.as_bytes()))).ok()?;
    Some(page)
}
