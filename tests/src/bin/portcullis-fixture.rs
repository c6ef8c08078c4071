//! `portcullis-fixture [--port N] [--stdio] [--era both|modern|legacy]`: the test upstream as a
//! process of its own. Over HTTP its first line says where it listens.

use std::error::Error;
use std::io::Write;

use portcullis_tests::fixture::{Era, Fixture, serve_http, serve_stdio};
use tokio::net::TcpListener;

const USAGE: &str = "usage: portcullis-fixture [--port N] [--stdio] [--era both|modern|legacy]";

enum Transport {
    Http { port: u16 },
    Stdio,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let (transport, era) = arguments(std::env::args().skip(1)).ok_or(USAGE)?;
    let fixture = Fixture::new(era);
    match transport {
        Transport::Stdio => serve_stdio(fixture).await,
        Transport::Http { port } => {
            let listener = TcpListener::bind(("127.0.0.1", port)).await?;
            let mut stdout = std::io::stdout();
            writeln!(stdout, "listening http://{}/mcp", listener.local_addr()?)?;
            stdout.flush()?;
            Ok(serve_http(listener, fixture).await?)
        }
    }
}

fn arguments(mut given: impl Iterator<Item = String>) -> Option<(Transport, Era)> {
    let (mut transport, mut era) = (Transport::Http { port: 0 }, Era::Both);
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "--port" => transport = Transport::Http { port: given.next()?.parse().ok()? },
            "--stdio" => transport = Transport::Stdio,
            "--era" => {
                era = match given.next()?.as_str() {
                    "both" => Era::Both,
                    "modern" => Era::Modern,
                    "legacy" => Era::Legacy,
                    _ => return None,
                }
            }
            _ => return None,
        }
    }
    Some((transport, era))
}
