//! What the demo CRM knows: three customers, four orders, and how much of each order was refunded.
//! Everything is in memory and starts the same way every time.

use std::collections::BTreeMap;
use std::fmt;

use rmcp::schemars;
use serde::{Deserialize, Serialize};

/// An amount in euro cents: sums stay exact.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Euro {
    cents: u64,
}

/// A person or company the demo sells to.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Customer {
    /// Customer id, such as c-1001.
    pub(super) id: String,
    /// Full name.
    pub(super) name: String,
    /// Address for replies.
    pub(super) email: String,
    /// What the customer pays for.
    pub(super) plan: Plan,
    /// City of the postal address.
    pub(super) city: String,
    /// Day of the first order, as YYYY-MM-DD.
    pub(super) since: String,
}

/// What a customer pays for.
#[derive(Clone, Copy, Debug, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum Plan {
    Free,
    Team,
    Business,
}

/// Where an order stands.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum Status {
    Pending,
    Shipped,
    Delivered,
    Returned,
}

/// One order.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) id: &'static str,
    pub(super) customer: &'static str,
    pub(super) status: Status,
    pub(super) total: Euro,
    pub(super) item: &'static str,
    refunded: Euro,
}

/// The books of the demo CRM.
#[derive(Debug)]
pub(super) struct Records {
    customers: BTreeMap<String, Customer>,
    orders: Vec<Order>,
    /// All refunds since the server started.
    refunded: Euro,
}

/// Why a refund did not happen.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum RefundRefusal {
    #[error("There is no order {0}. Orders run from o-5001 to o-5004.")]
    NoOrder(String),
    #[error("A refund must be more than 0.00 EUR.")]
    Nothing,
    #[error("Order {order} has {left} left to refund; {asked} is too much. Nothing was refunded.")]
    TooMuch { order: String, left: Euro, asked: Euro },
}

impl Euro {
    pub(super) const fn from_cents(cents: u64) -> Self {
        Self { cents }
    }

    /// The nearest cent of an amount such as 20 or 19.99; none for what is not an amount.
    pub(super) fn from_amount(amount: f64) -> Option<Self> {
        const EURO_MAX: f64 = 1_000_000.0;
        if !(0.0..=EURO_MAX).contains(&amount) {
            return None;
        }
        format!("{:.0}", amount * 100.0).parse().ok().map(Self::from_cents)
    }

    fn plus(self, other: Self) -> Self {
        Self::from_cents(self.cents.saturating_add(other.cents))
    }

    fn minus(self, other: Self) -> Self {
        Self::from_cents(self.cents.saturating_sub(other.cents))
    }
}

impl fmt::Display for Euro {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02} EUR", self.cents / 100, self.cents % 100)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Free => "free",
            Self::Team => "team",
            Self::Business => "business",
        })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Shipped => "shipped",
            Self::Delivered => "delivered",
            Self::Returned => "returned",
        })
    }
}

impl fmt::Display for Customer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, name, email, plan, city, since } = self;
        write!(f, "{id} {name} <{email}>, {plan} plan, {city}, customer since {since}")
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, customer, status, total, item, refunded } = self;
        write!(f, "{id} {customer} {status} {total}: {item}")?;
        if *refunded > Euro::default() {
            write!(f, " ({refunded} refunded)")?;
        }
        Ok(())
    }
}

impl Records {
    pub(super) fn new() -> Self {
        let customers = [
            (
                "c-1001",
                "Ada Keller",
                "ada.keller@example.com",
                Plan::Business,
                "Berlin",
                "2021-03-14",
            ),
            ("c-1002", "Bruno Costa", "bruno.costa@example.com", Plan::Team, "Porto", "2023-09-02"),
            (
                "c-1003",
                "Chiyo Tanaka",
                "chiyo.tanaka@example.com",
                Plan::Free,
                "Kyoto",
                "2025-01-20",
            ),
        ];
        let orders = [
            ("o-5001", "c-1001", Status::Delivered, 24_000, "standing desk"),
            ("o-5002", "c-1001", Status::Shipped, 7_950, "desk lamp"),
            ("o-5003", "c-1002", Status::Returned, 12_900, "office chair"),
            ("o-5004", "c-1003", Status::Pending, 1_890, "notebook, pack of three"),
        ];
        Self {
            customers: customers
                .into_iter()
                .map(|(id, name, email, plan, city, since)| Customer {
                    id: id.to_owned(),
                    name: name.to_owned(),
                    email: email.to_owned(),
                    plan,
                    city: city.to_owned(),
                    since: since.to_owned(),
                })
                .map(|customer| (customer.id.clone(), customer))
                .collect(),
            orders: orders
                .into_iter()
                .map(|(id, customer, status, cents, item)| Order {
                    id,
                    customer,
                    status,
                    total: Euro::from_cents(cents),
                    item,
                    refunded: Euro::default(),
                })
                .collect(),
            refunded: Euro::default(),
        }
    }

    pub(super) fn customer(&self, id: &str) -> Option<&Customer> {
        self.customers.get(id)
    }

    pub(super) fn order(&self, id: &str) -> Option<&Order> {
        self.orders.iter().find(|order| order.id == id)
    }

    /// Customers whose id, name, email or city contains the query, without regard to case.
    pub(super) fn search(&self, query: &str) -> Vec<&Customer> {
        let query = query.to_lowercase();
        let matches = |customer: &&Customer| {
            [&customer.id, &customer.name, &customer.email, &customer.city]
                .iter()
                .any(|field| field.to_lowercase().contains(&query))
        };
        self.customers.values().filter(matches).collect()
    }

    /// Orders that meet every condition given.
    pub(super) fn orders(&self, customer: Option<&str>, status: Option<Status>) -> Vec<&Order> {
        self.orders
            .iter()
            .filter(|order| customer.is_none_or(|wanted| order.customer == wanted))
            .filter(|order| status.is_none_or(|wanted| order.status == wanted))
            .collect()
    }

    /// Refunds part of an order and answers with the total of all refunds so far.
    pub(super) fn refund(&mut self, order: &str, amount: Euro) -> Result<Euro, RefundRefusal> {
        let Some(entry) = self.orders.iter_mut().find(|entry| entry.id == order) else {
            return Err(RefundRefusal::NoOrder(order.to_owned()));
        };
        if amount == Euro::default() {
            return Err(RefundRefusal::Nothing);
        }
        let left = entry.total.minus(entry.refunded);
        if amount > left {
            return Err(RefundRefusal::TooMuch { order: order.to_owned(), left, asked: amount });
        }
        entry.refunded = entry.refunded.plus(amount);
        self.refunded = self.refunded.plus(amount);
        Ok(self.refunded)
    }

    /// Deletes a customer; orders stay, as books must.
    pub(super) fn delete(&mut self, id: &str) -> Option<Customer> {
        self.customers.remove(id)
    }
}
