//! A headless Chromium, driven over its debugging pipe: JSON between zero bytes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A start of a browser on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// One browser with one page; killed when dropped.
pub(crate) struct Browser {
    child: Child,
    pipe: ChildStdin,
    said: Receiver<Value>,
    session: Option<String>,
    calls: u64,
    /// What it told without being asked.
    events: Vec<Value>,
    _home: TempDir,
}

impl Browser {
    /// Starts one with an empty page of this width.
    pub(crate) fn start(width: u32) -> Result<Self> {
        let home = TempDir::new()?;
        // The browser reads descriptor 3 and writes descriptor 4.
        let script = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut child = Command::new("sh")
            .args(["-c", script, "sh", "chromium", "--headless=new", "--no-sandbox", "--disable-gpu"])
            .args(["--remote-debugging-pipe", "--no-first-run", "--disable-background-networking"])
            .arg(format!("--user-data-dir={}", home.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (pipe, output) = child.stdin.take().zip(child.stdout.take()).context("no pipes")?;
        let (tell, said) = channel();
        thread::spawn(move || {
            let messages = BufReader::new(output).split(0).map_while(Result::ok);
            for message in messages.filter_map(|bytes| serde_json::from_slice::<Value>(&bytes).ok()) {
                // It fails when the test is over.
                let _ = tell.send(message);
            }
        });
        let mut browser =
            Self { child, pipe, said, session: None, calls: 0, events: Vec::new(), _home: home };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", &attach)?;
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Runtime", "Log", "Network", "Page"] {
            browser.call(&format!("{domain}.enable"), &json!({}))?;
        }
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        browser.call("Emulation.setDeviceMetricsOverride", &size)?;
        Ok(browser)
    }

    /// Calls a method of the protocol and waits for its result.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.calls += 1;
        let mut call = json!({"id": self.calls, "method": method, "params": params});
        if let Some(session) = &self.session {
            call["sessionId"] = json!(session);
        }
        self.pipe.write_all(format!("{call}\0").as_bytes())?;
        loop {
            let said = self.said.recv_timeout(PATIENCE).with_context(|| format!("no answer to {method}"))?;
            if said["id"] == json!(self.calls) {
                ensure!(said["error"].is_null(), "{method}: {}", said["error"]);
                return Ok(said["result"].clone());
            }
            self.events.push(said);
        }
    }

    /// The value of an expression of JavaScript.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let params = json!({"expression": expression, "returnByValue": true});
        let result = self.call("Runtime.evaluate", &params)?;
        ensure!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        Ok(result["result"]["value"].clone())
    }

    /// Errors that the console shows, and exceptions.
    pub(crate) fn errors(&self) -> Vec<&Value> {
        let is_error = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => event["params"]["type"] == "error",
            Some("Log.entryAdded") => event["params"]["entry"]["level"] == "error",
            _ => false,
        };
        self.events.iter().filter(is_error).collect()
    }

    /// The addresses that were asked for.
    pub(crate) fn requested(&self) -> Vec<&str> {
        let requests = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        requests.filter_map(|event| event["params"]["request"]["url"].as_str()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
