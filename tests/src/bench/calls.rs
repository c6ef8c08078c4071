//! Sends a fixed number of requests to a gateway on one connection and checks each answer: a
//! fixed amount of work for counting instructions.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

/// `calls URL TOKEN MODE COUNT`, MODE one of `call`, `refused`, `list`.
pub(super) fn calls(arguments: &[&str]) -> Result<String, String> {
    let [url, token, mode, count] = arguments else {
        return Err("portcullis-bench calls URL TOKEN call|refused|list COUNT".to_owned());
    };
    let count: u32 = count.parse().map_err(|_| format!("`{count}` is no number"))?;
    let (host, path) = url
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'))
        .ok_or_else(|| format!("`{url}` is no http URL"))?;
    let stream = TcpStream::connect(host).map_err(|e| format!("{host}: {e}"))?;
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    let mut connection = Connection { reader: BufReader::new(stream), host, path, token };
    for number in 0..count {
        let answer = connection.ask(mode, number)?;
        let good = match *mode {
            "call" => {
                answer.contains(&format!("number\\\":{number}"))
                    && !answer.contains("isError\":true")
            }
            "refused" => answer.contains("is not available to agent"),
            _ => answer.contains("\"tools\":["),
        };
        if !good {
            return Err(format!("request {number}: {answer}"));
        }
    }
    Ok(format!("{count} answers were right"))
}

struct Connection<'a> {
    reader: BufReader<TcpStream>,
    host: &'a str,
    path: &'a str,
    token: &'a str,
}

impl Connection<'_> {
    fn ask(&mut self, mode: &str, number: u32) -> Result<String, String> {
        let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
        let (method, name) = match mode {
            "call" => ("tools/call", "fixture__echo"),
            "refused" => ("tools/call", "fixture__delete_everything"),
            _ => ("tools/list", ""),
        };
        let params = match name {
            "" => format!("{{{meta}}}"),
            name => format!(
                r#"{{"name":"{name}","arguments":{{"number":{number},"text":"sixty-four bytes of text, more or less, as a tool would get"}},{meta}}}"#
            ),
        };
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"{method}","params":{params}}}"#);
        let named = if name.is_empty() { String::new() } else { format!("mcp-name: {name}\r\n") };
        let head = format!(
            "POST /{} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\n{named}content-length: {}\r\n\r\n",
            self.path,
            self.host,
            self.token,
            body.len()
        );
        let message = head + &body;
        self.reader.get_mut().write_all(message.as_bytes()).map_err(|e| e.to_string())?;
        self.answer()
    }

    fn answer(&mut self) -> Result<String, String> {
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line).map_err(|e| e.to_string())?;
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().map_err(|_| format!("bad length: {value}"))?;
            }
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body).map_err(|e| e.to_string())?;
        String::from_utf8(body).map_err(|e| e.to_string())
    }
}
