//! The status page in a browser.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use xuid_tests::{Job, Load, Order, Serve, Work, clock};

use crate::browser::Browser;
use crate::installed;

/// Some polls, one a second, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

const LOAD_JOB: Job = Job::gently(Work::Next(16), Order::Any, Duration::from_millis(1));

/// A small phone.
const NARROW: u32 = 400;

#[test]
fn the_status_page_moves_decodes_and_asks_nobody_else() -> Result<()> {
    if !installed("chromium", "the status page in a browser")? {
        return Ok(());
    }
    let server = Serve::fresh()?.start()?;
    let load = Load::start(server.addr, &[LOAD_JOB]);
    let mut browser = Browser::start(NARROW)?;
    let address = format!("http://{}/", server.admin);
    browser.call("Page.navigate", &json!({"url": address}))?;

    let points = "(document.querySelector('#rate path')?.getAttribute('d') ?? '').split('L').length";
    for least in [3, 5] {
        clock::wait_until("the plot moves", PATIENCE, || {
            Ok(browser.evaluate(points)?.as_u64().is_some_and(|points| points >= least))
        })?;
    }
    let text = |id: &str| format!("document.getElementById('{id}').textContent");
    let mut shown = Vec::new();
    for id in ["state", "rate-now", "p50", "p99", "tiers", "windows"] {
        let text = browser.evaluate(&text(id))?.as_str().unwrap_or_default().to_owned();
        ensure!(!text.is_empty() && !text.contains("NaN") && !text.contains("undefined"), "{id}: {text:?}");
        shown.push(text);
    }
    println!("status page: {shown:?}");
    ensure!(shown[0] == "ready" && shown[1].contains("a second") && shown[2].ends_with('s'), "{shown:?}");
    ensure!(shown[5].contains("worker"), "{shown:?}");
    load.ask_to_stop();
    load.join()?;

    let mut client = server.client()?;
    let id = client.next(Order::Fresh)?;
    let parts = client.decode(id)?;
    let typed = format!(
        "document.getElementById('id').value = '{id}'; document.getElementById('id').dispatchEvent(new Event('input'));
         [...document.querySelectorAll('#decoded td')].map((cell) => cell.textContent)"
    );
    let decoded = browser.evaluate(&typed)?;
    let time = browser.evaluate(&format!("new Date({}).toISOString()", parts.unix_ms))?;
    ensure!(
        decoded[0] == time && decoded[1].as_str().is_some_and(|text| text.ends_with(" ago")),
        "{decoded}"
    );
    let (worker, sequence) = (parts.worker.to_string(), parts.sequence.to_string());
    ensure!(decoded[2] == worker.as_str() && decoded[3] == sequence.as_str(), "{decoded}");

    let wide = browser.evaluate("document.documentElement.scrollWidth")?.as_u64().context("a width")?;
    ensure!(wide <= u64::from(NARROW), "{wide} pixels wide on {NARROW}");
    for (scheme, is_dark) in [("light", false), ("dark", true)] {
        let feature = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        browser.call("Emulation.setEmulatedMedia", &feature)?;
        let colour = "getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)[0]";
        let red = browser.evaluate(colour)?.as_u64().context("a colour")?;
        ensure!((red < 128) == is_dark, "{scheme}: the background has {red} of red");
    }
    ensure!(browser.errors().is_empty(), "errors in the console: {:?}", browser.errors());
    let elsewhere: Vec<_> = browser
        .requested()
        .into_iter()
        .filter(|url| !url.starts_with(&address) && *url != "data:,")
        .collect();
    ensure!(elsewhere.is_empty(), "asked elsewhere: {elsewhere:?}");

    // What the policy is for: text that became markup after all does not run.
    let injected =
        "document.body.insertAdjacentHTML('beforeend', '<img src=\"data:,\" onerror=\"window.ran = 1\">');
         const script = document.createElement('script'); script.textContent = 'window.ran = 1';
         document.body.append(script); window.ran === undefined";
    ensure!(browser.evaluate(injected)? == true, "a script without the nonce ran");
    Ok(())
}
