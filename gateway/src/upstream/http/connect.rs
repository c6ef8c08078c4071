//! Opens connections to one origin. A name is resolved where it is connected, so that what was
//! checked is what is used; redirects are not followed anywhere.

use hyper_util::rt::TokioIo;
use rustls_platform_verifier::BuilderVerifierExt as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig};

/// How long name resolution, connecting and the TLS handshake may take together.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How long one address may take before the next one is tried.
const ADDRESS_WITHIN: Duration = Duration::from_secs(4);

/// An origin.
#[derive(Clone)]
pub(crate) struct Origin {
    /// Name or address, without brackets.
    pub(crate) host: String,
    /// Port.
    pub(crate) port: u16,
    /// How to encrypt; `None` is plain HTTP.
    pub(crate) tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The TLS settings for all origins: the certificates this machine trusts.
pub(crate) fn tls() -> Result<TlsConnector, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_platform_verifier()?
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

impl Origin {
    /// Opens a connection.
    pub(crate) async fn connect(&self) -> Result<TokioIo<Stream>, String> {
        match timeout(CONNECT_WITHIN, self.open()).await {
            Ok(Ok(stream)) => Ok(TokioIo::new(stream)),
            Ok(Err(error)) => Err(format!("connecting to {self:?}: {error}")),
            Err(_) => Err(format!("connecting to {self:?} takes more than {CONNECT_WITHIN:?}")),
        }
    }

    async fn open(&self) -> io::Result<Stream> {
        let stream = self.open_tcp().await?;
        // Requests are small and written whole.
        stream.set_nodelay(true)?;
        match &self.tls {
            None => Ok(Stream::Plain(stream)),
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await?;
                Ok(Stream::Tls(Box::new(stream)))
            }
        }
    }

    async fn open_tcp(&self) -> io::Result<TcpStream> {
        let literal = self.host.parse::<IpAddr>().ok();
        let addresses: Vec<SocketAddr> = match literal {
            Some(address) => vec![SocketAddr::new(address, self.port)],
            None => lookup_host((self.host.as_str(), self.port)).await?.collect(),
        };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in addresses {
            if literal.is_none() && is_link_local(address.ip()) {
                last = io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    "the name leads to a link-local address, where cloud metadata is served",
                );
                continue;
            }
            match timeout(ADDRESS_WITHIN, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(last)
    }
}

// Link-local, also in the shapes an IPv4 address takes inside an IPv6 one: mapped, NAT64, 6to4.
fn is_link_local(address: IpAddr) -> bool {
    let address = match address {
        IpAddr::V4(address) => return address.is_link_local(),
        IpAddr::V6(address) => address,
    };
    let inner = match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => (high, low),
        [0x2002, high, low, ..] => (high, low),
        _ => return is_unicast_link_local(address),
    };
    let [a, b] = inner.0.to_be_bytes();
    let [c, d] = inner.1.to_be_bytes();
    Ipv4Addr::new(a, b, c, d).is_link_local()
}

fn is_unicast_link_local(address: Ipv6Addr) -> bool {
    let [first, ..] = address.segments();
    first & 0xffc0 == 0xfe80
}

/// A connection, encrypted or not.
#[derive(Debug)]
pub(crate) enum Stream {
    /// Plain.
    Plain(TcpStream),
    /// TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_addresses_are_known_in_every_shape() {
        for bad in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "fe80::1",
        ] {
            assert!(is_link_local(bad.parse().unwrap()), "{bad}");
        }
        for good in ["127.0.0.1", "10.0.0.1", "::1", "64:ff9b::7f00:1", "2001:db8::1"] {
            assert!(!is_link_local(good.parse().unwrap()), "{good}");
        }
    }
}
