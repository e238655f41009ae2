//! A server that gives the answers that it is told to, one connection after the other.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) first: String,
    /// With their names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

pub(crate) struct Server {
    pub(crate) url: String,
    thread: JoinHandle<Vec<Heard>>,
}

impl Server {
    /// Gives these answers. An empty one is none: the connection stays open until the other side leaves.
    pub(crate) fn start(answers: &[&str]) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook?token=hidden", listener.local_addr().unwrap());
        let answers: Vec<String> = answers.iter().map(|answer| (*answer).to_owned()).collect();
        let serve = move || answers.iter().map(|answer| hear(listener.accept().unwrap().0, answer)).collect();
        Server { url, thread: std::thread::spawn(serve) }
    }

    /// All that it heard, when it has given all its answers.
    pub(crate) fn heard(self) -> Vec<Heard> {
        self.thread.join().unwrap()
    }
}

fn hear(mut stream: TcpStream, answer: &str) -> Heard {
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
    Heard { first: lines[0].clone(), headers, body }
}
