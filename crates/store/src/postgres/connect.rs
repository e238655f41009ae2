//! The address of the server, and connecting to it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, Stream};
use rustix::rand::GetRandomFlags;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::config::SslMode;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, Socket};

use crate::error::StoreError;

/// Time limit of one attempt to connect.
const CONNECT: Duration = Duration::from_secs(5);

/// The address of a database, with credentials.
#[derive(Clone)]
pub struct Server {
    config: Config,
    /// The same without the password, for messages.
    place: String,
    /// A file with the authority that signed the server's certificate.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "only an encrypted connection has a certificate"))]
    root_certificate: Option<String>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.place)
    }
}

impl Server {
    /// Parses a URL as libpq does: `postgres://user:password@host:port/database?host=/socket/dir`. `variable` looks up
    /// `PGHOST`, `PGUSER`, `PGPASSWORD`, `PGDATABASE` and `PGSSLROOTCERT` for missing parts; `client` is the
    /// application name that the server's administrator sees.
    pub fn parse(url: &str, variable: impl Fn(&str) -> Option<String>, client: &str) -> Result<Server, String> {
        let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| chain(&error))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            config.host(variable("PGHOST").as_deref().unwrap_or("/var/run/postgresql"));
        }
        if config.get_user().is_none() {
            let user = variable("PGUSER").or_else(|| variable("USER")).or_else(|| variable("LOGNAME"));
            config.user(user.as_deref().unwrap_or("postgres"));
        }
        if config.get_dbname().is_none()
            && let Some(database) = variable("PGDATABASE")
        {
            config.dbname(&database);
        }
        if config.get_password().is_none()
            && let Some(password) = variable("PGPASSWORD")
        {
            config.password(password);
        }
        config.connect_timeout(CONNECT).application_name(client);
        let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
        let host = config.get_hosts().first().map_or_else(String::new, |host| match host {
            tokio_postgres::config::Host::Tcp(name) => name.clone(),
            tokio_postgres::config::Host::Unix(dir) => dir.display().to_string(),
        });
        let place = format!("database {database} on {host}");
        Ok(Server { config, place, root_certificate: variable("PGSSLROOTCERT") })
    }

    /// The place for messages, without the password.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The URL, completed from the environment and without the password.
    pub fn url(&self) -> String {
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or_default();
        let user = self.config.get_user().unwrap_or_default();
        let port = self.config.get_ports().first().filter(|port| **port != 5_432);
        match self.config.get_hosts().first() {
            Some(tokio_postgres::config::Host::Tcp(host)) => {
                let port = port.map_or_else(String::new, |port| format!(":{port}"));
                format!("postgres://{user}@{host}{port}/{database}")
            }
            Some(tokio_postgres::config::Host::Unix(dir)) => {
                let port = port.map_or_else(String::new, |port| format!("&port={port}"));
                format!("postgres:///{database}?host={}&user={user}{port}", dir.display())
            }
            None => format!("postgres://{user}@/{database}"),
        }
    }

    pub(super) async fn connect(&self) -> Result<(Client, Messages), StoreError> {
        let unreachable =
            |text: String| StoreError::Unreachable { source: Arc::new(std::io::Error::other(format!("{}: {text}", self.place))) };
        let connected = tokio::time::timeout(CONNECT, self.dial()).await;
        let connected = connected.unwrap_or_else(|_| Err(format!("no answer within {} s", CONNECT.as_secs())));
        connected.map_err(unreachable)
    }

    async fn dial(&self) -> Result<(Client, Messages), String> {
        #[cfg(feature = "tls")]
        if self.may_encrypt() {
            let tls = tokio_postgres_rustls::MakeRustlsConnect::new(self.tls()?);
            let (client, connection) = self.config.connect(tls).await.map_err(|error| chain(&error))?;
            return Ok((client, messages(connection)));
        }
        if self.config.get_ssl_mode() == SslMode::Require {
            return Err("the URL asks for TLS, and this banksman was built without it (cargo feature `tls`)".into());
        }
        let (client, connection) = self.config.connect(NoTls).await.map_err(|error| chain(&error))?;
        Ok((client, messages(connection)))
    }

    /// A Unix socket is never encrypted, and neither is a connection whose URL disables TLS.
    #[cfg(feature = "tls")]
    fn may_encrypt(&self) -> bool {
        let by_network = |host: &tokio_postgres::config::Host| matches!(host, tokio_postgres::config::Host::Tcp(_));
        self.config.get_ssl_mode() != SslMode::Disable && self.config.get_hosts().iter().any(by_network)
    }

    /// Trusts the system's authorities and the one in `PGSSLROOTCERT`. Certificates are always verified, as with
    /// libpq's `verify-full`: an encrypted connection to an unknown server protects nothing.
    #[cfg(feature = "tls")]
    fn tls(&self) -> Result<rustls::ClientConfig, String> {
        use rustls::pki_types::{CertificateDer, pem::PemObject};
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(path) = &self.root_certificate {
            let wrong = |error: &dyn std::fmt::Display| format!("PGSSLROOTCERT {path}: {error}");
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
                let certificate = certificate.map_err(|error| wrong(&error))?;
                roots.add(certificate).map_err(|error| wrong(&error))?;
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?;
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }
}

/// Messages that the server sends besides answers. The stream must be polled for any progress on the connection.
pub(super) type Messages = Pin<Box<dyn Stream<Item = Result<AsyncMessage, tokio_postgres::Error>> + Send>>;

fn messages<T>(mut connection: Connection<Socket, T>) -> Messages
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    Box::pin(stream::poll_fn(move |context| connection.poll_message(context)))
}

/// A private runtime for one connection: it runs only while a caller waits for it.
pub(super) fn runtime() -> Result<Runtime, StoreError> {
    Builder::new_current_thread().enable_all().build().map_err(StoreError::io)
}

/// Waits before the next attempt. The pause grows with the time spent so far, and is random, so that clients do not
/// retry in step.
pub(super) fn pause(so_far: Duration) {
    let mut byte = [0u8; 1];
    // Without randomness the clients retry in step; that is slow, not wrong.
    rustix::rand::getrandom(&mut byte, GetRandomFlags::empty()).unwrap_or(0);
    let base = Duration::from_millis(10).max(so_far / 4).min(Duration::from_millis(500));
    std::thread::sleep(base.mul_f64(0.5 + f64::from(byte[0]) / 255.0));
}

/// An error with all its causes: the outermost one alone often says little.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_like_libpq_and_passwords_stay_hidden() {
        let none = |_: &str| None;
        let server = Server::parse("postgres://me:secret@db.example.invalid:5433/app", none, "test").unwrap();
        assert_eq!(server.place(), "database app on db.example.invalid");
        assert!(!format!("{server:?}").contains("secret"));
        let server = Server::parse("postgres:///app?host=/run/pg", none, "test").unwrap();
        assert_eq!(server.place(), "database app on /run/pg");
        let var = |name: &str| Some(format!("from-{name}"));
        let server = Server::parse("postgres://", var, "test").unwrap();
        assert_eq!(server.place(), "database from-PGDATABASE on from-PGHOST");
        assert!(Server::parse("postgres://host:port/x", none, "test").is_err());
    }
}
