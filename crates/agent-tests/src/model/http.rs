//! The part of HTTP/1.1 that the programs use.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) body: Value,
}

pub(super) enum Response {
    Json(Value),
    /// Server-sent events: an optional name and the data of each.
    Events(Vec<(Option<&'static str>, String)>),
    Error {
        status: u16,
        headers: Vec<(String, String)>,
        body: Value,
    },
    /// A response that breaks off in the middle.
    Cut,
}

/// Reads a request; `None` at the end of the connection.
pub(super) fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut length, mut is_chunked) = (0, false);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok().filter(|length| *length > 0)?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok()?,
            "transfer-encoding" => is_chunked = value.trim().eq_ignore_ascii_case("chunked"),
            "expect" => stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    while is_chunked {
        let mut size = String::new();
        reader.read_line(&mut size).ok()?;
        let size = usize::from_str_radix(size.trim().split(';').next()?, 16).ok()?;
        let from = body.len();
        body.resize(from + size, 0);
        reader.read_exact(&mut body[from..]).ok()?;
        reader.read_line(&mut String::new()).ok()?;
        is_chunked = size > 0;
    }
    Some(Request { method, path, body: serde_json::from_slice(&body).unwrap_or_default() })
}

pub(super) fn write(stream: &mut TcpStream, response: &Response) -> io::Result<()> {
    match response {
        Response::Json(value) => plain(stream, 200, &[], value),
        Response::Error { status, headers, body } => plain(stream, *status, headers, body),
        Response::Events(events) => {
            let mut text = String::new();
            for (name, data) in events {
                name.iter().for_each(|name| text.push_str(&format!("event: {name}\n")));
                text.push_str(&format!("data: {data}\n\n"));
            }
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache";
            write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{text}", text.len())?;
            stream.flush()
        }
        Response::Cut => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 1000";
            write!(stream, "{head}\r\n\r\nevent: message_start\ndata: {{\"type\"")?;
            stream.flush()
        }
    }
}

fn plain(stream: &mut TcpStream, status: u16, headers: &[(String, String)], body: &Value) -> io::Result<()> {
    let body = body.to_string();
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\n{headers}");
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len())?;
    stream.flush()
}
