//! A server that gives fixed answers, one connection after the other.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) first: String,
    /// The headers, with their names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

pub(crate) struct Server {
    pub(crate) url: String,
    thread: JoinHandle<Vec<Request>>,
}

impl Server {
    /// Starts a server that gives these answers. For an empty one it sends nothing, and keeps the connection open until
    /// the client closes it.
    pub(crate) fn start(answers: &[&str]) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook?token=hidden", listener.local_addr().unwrap());
        let answers: Vec<String> = answers.iter().map(|answer| (*answer).to_owned()).collect();
        let serve = move || answers.iter().map(|answer| handle(listener.accept().unwrap().0, answer)).collect();
        Server { url, thread: std::thread::spawn(serve) }
    }

    /// The requests, once all answers are given.
    pub(crate) fn requests(self) -> Vec<Request> {
        self.thread.join().unwrap()
    }
}

fn handle(mut stream: TcpStream, answer: &str) -> Request {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let headers: BTreeMap<String, String> =
        lines[1..].iter().map(|line| line.split_once(": ").unwrap()).map(|(n, v)| (n.to_lowercase(), v.into())).collect();
    let mut body = vec![0; headers["content-length"].parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    if answer.is_empty() {
        // Ends when the client gives up.
        reader.read_to_end(&mut Vec::new()).ok();
    } else {
        write!(stream, "HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n").unwrap();
    }
    Request { first: lines[0].clone(), headers, body }
}
