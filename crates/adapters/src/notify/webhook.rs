//! A URL that notices are posted to.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;
use thiserror::Error;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Timeout, http::Uri};

use super::{Notice, NotifyError};
use crate::digest;

/// Where notices are posted, and how they are signed.
#[derive(Clone)]
pub struct Webhook {
    url: Uri,
    secret: Option<Secret>,
}

/// The key that signs notices. It is never shown.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

/// Why a secret cannot be used.
#[derive(Debug, Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("{path} cannot be read: {source}")]
    Read { path: String, source: io::Error },
    /// The path is not a plain file.
    #[error("{path} is not a plain file")]
    NoFile { path: String },
    /// Other users can read the file.
    #[error("{path} is open to others (its mode is {mode:03o})")]
    Open { path: String, mode: u32 },
    /// The file is empty, or too long for a secret.
    #[error("{path} has {length} bytes, which is no secret")]
    Length { path: String, length: usize },
}

impl Secret {
    /// The longest secret, in bytes.
    const LONGEST: usize = 4_096;

    /// Reads the secret from a file that no other user may read, without line breaks at its end.
    pub fn read(path: &Path) -> Result<Secret, SecretError> {
        let name = path.display().to_string();
        let cannot = |source| SecretError::Read { path: path.display().to_string(), source };
        // Opening a named pipe must not block.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of open is an int");
        let mut file = File::options().read(true).custom_flags(flags).open(path).map_err(cannot)?;
        // The metadata of the open file, so that the checked file is the one that is read.
        let found = file.metadata().map_err(cannot)?;
        if !found.is_file() {
            return Err(SecretError::NoFile { path: name });
        }
        let mode = found.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(SecretError::Open { path: name, mode });
        }
        let mut bytes = Vec::new();
        file.by_ref().take(Secret::LONGEST as u64 + 1).read_to_end(&mut bytes).map_err(cannot)?;
        while bytes.pop_if(|byte| *byte == b'\n' || *byte == b'\r').is_some() {}
        match bytes.len() {
            1..=Secret::LONGEST => Ok(Secret(bytes)),
            length => Err(SecretError::Length { path: name, length }),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("host", &self.host()).field("secret", &self.secret).finish()
    }
}

impl Webhook {
    /// The webhook at this URL, or an error that does not repeat the URL: it may carry a token.
    pub fn new(url: &str, secret: Option<Secret>) -> Result<Webhook, String> {
        let sound =
            |url: &Uri| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some_and(|host| !host.is_empty());
        let url =
            url.parse().ok().filter(sound).ok_or("it must be a URL that begins with https:// or http:// and names a host")?;
        Ok(Webhook { url, secret })
    }

    /// The host, with its port if the URL has one. The rest of a URL may be secret.
    pub fn host(&self) -> String {
        let host = self.url.host().unwrap_or_default();
        self.url.port_u16().map_or_else(|| host.into(), |port| format!("{host}:{port}"))
    }

    pub(super) fn send(&self, notice: &Notice, delivery: &str, limit: Duration) -> Result<(), NotifyError> {
        let body = notice.to_json();
        let mut request = agent(limit, self.url.scheme_str() == Some("https"))
            .post(&self.url)
            .header("Content-Type", "application/json")
            .header("X-Banksman-Delivery", delivery);
        if let Some(Secret(secret)) = &self.secret {
            request = request.header("X-Banksman-Signature", format!("sha256={}", digest::hmac_sha256(secret, &body)));
        }
        let host = self.host();
        match request.send(&body[..]).map(|response| response.status().as_u16()) {
            Ok(200..=299) => Ok(()),
            Ok(status @ (429 | 500..=599)) => Err(NotifyError::Busy { host, status }),
            Ok(status) => Err(NotifyError::Refused { host, status }),
            Err(error) => Err(classify(host, &error)),
        }
    }
}

/// A client for one request. It follows no redirect, because the notice is for one host only, and uses no proxy, because a proxy
/// would come from the environment.
fn agent(limit: Duration, encrypted: bool) -> Agent {
    // Connecting times out before the global limit does, so a global time-out means that the request may have been sent.
    let connecting = limit * 2 / 5;
    let mut config = Agent::config_builder()
        .user_agent(concat!("banksman/", env!("CARGO_PKG_VERSION")))
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_global(Some(limit))
        .timeout_resolve(Some(connecting))
        .timeout_connect(Some(connecting));
    if encrypted {
        config = config.tls_config(TlsConfig::builder().root_certs(authorities()).build());
    }
    config.build().into()
}

/// The certificate authorities that the system trusts, or the built-in ones if it has none.
fn authorities() -> RootCerts {
    let found = rustls_native_certs::load_native_certs().certs;
    if found.is_empty() {
        return RootCerts::WebPki;
    }
    RootCerts::Specific(Arc::new(found.iter().map(|der| Certificate::from_der(der).to_owned()).collect()))
}

/// Maps an error of the client. Unless the error is known to precede the request, the server may have got the notice.
fn classify(host: String, error: &ureq::Error) -> NotifyError {
    let what = error.to_string();
    match error {
        ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) | ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => {
            NotifyError::Unreachable { host, what }
        }
        ureq::Error::Io(error) if before_the_request(error) => NotifyError::Unreachable { host, what: error.to_string() },
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => NotifyError::Unusable { host, what },
        // The handshake comes before the request.
        _ if what.contains("invalid peer certificate") => NotifyError::Unusable { host, what },
        _ => NotifyError::NoAnswer { host, what },
    }
}

fn before_the_request(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkDown, NetworkUnreachable};
    let connecting = [AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkDown, NetworkUnreachable];
    // A failed name lookup has no error kind of its own.
    connecting.contains(&error.kind()) || error.to_string().starts_with("failed to lookup address")
}
