//! Whether a running gateway answers.

use super::Check;
use super::store::Running;
use crate::config::Config;
use reqwest::{Client, redirect};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpStream;

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn listeners(config: &Config, running: Running) -> Vec<Check> {
    let listen = &config.listen;
    let mut checks = Vec::new();
    for (name, address) in [("agents", listen.agents), ("admin", listen.admin)] {
        if address.port() != 0 {
            checks.push(door(name, address, running).await);
        }
    }
    if running == Running::Yes && listen.observe.port() != 0 {
        checks.push(health(listen.observe).await);
    }
    checks
}

async fn door(name: &'static str, address: SocketAddr, running: Running) -> Check {
    let place = format!("{name} listener at {address}");
    match (running, open(address).await) {
        (Running::Yes, true) => Check::ok("listener", &place, "it accepts connections"),
        (Running::Yes, false) => Check::failed(
            "listener",
            &place,
            "a gateway has the store, but nobody answers here",
            format!(
                "see its log; it may listen elsewhere, as `listen.{name}` said when it started"
            ),
        ),
        (Running::No, true) => Check::warning(
            "listener",
            &place,
            "no gateway has the store, but something answers here",
            format!("stop what uses the address, or set `listen.{name}`"),
        ),
        (Running::No, false) => Check::ok("listener", &place, "free; no gateway runs"),
    }
}

async fn health(address: SocketAddr) -> Check {
    let address = reachable(address);
    let place = format!("http://{address}/readyz");
    let answer = async {
        let http = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .timeout(ANSWER_TIMEOUT)
            .build()?;
        let answer = http.get(&place).send().await?;
        Ok::<_, reqwest::Error>((answer.status().as_u16(), answer.text().await?))
    };
    match answer.await {
        Ok((200, _)) => Check::ok("health", &place, "ready"),
        Ok((503, reasons)) => Check::warning(
            "health",
            &place,
            format!("not ready: {reasons}"),
            "wait, or see its log",
        ),
        Ok((status, _)) => {
            let found = format!("status {status}, which no gateway answers");
            Check::failed("health", &place, found, "stop what uses the address")
        }
        Err(error) => Check::failed("health", &place, error.to_string(), "see the gateway's log"),
    }
}

async fn open(address: SocketAddr) -> bool {
    let connected = TcpStream::connect(reachable(address));
    matches!(tokio::time::timeout(ANSWER_TIMEOUT, connected).await, Ok(Ok(_)))
}

/// An address that stands for all is called by the one of this machine.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, address.port())
}
