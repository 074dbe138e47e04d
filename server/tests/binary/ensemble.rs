//! What is told of a registry in an ensemble where no ensemble answers: wrong usage, failures, and their exit codes.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Server, failure, now, run, stdout, xuid};

/// A port that nobody listens on.
const NOBODY: &str = "127.0.0.1:1";

/// Every command that a registry can be named to.
fn commands<'a>(url: &'a str, data: &'a str) -> [Vec<&'a str>; 6] {
    [
        vec!["serve", "--registry", url, "--data-dir", data, "--listen", "127.0.0.1:0", "--admin", "off"],
        vec!["workers", "--registry", url],
        vec!["registry", "init", url],
        vec!["registry", "show", url],
        vec!["registry", "fence", url, "--yes"],
        vec!["registry", "adopt", url, "--yes"],
    ]
}

#[test]
fn a_url_that_is_none_is_wrong_usage_and_answered_with_the_form_of_one() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    for url in
        ["zookeeper://127.0.0.1:2181", "zookeeper:///xuid", "zookeeper://a:0/x", "etcd://127.0.0.1:2379/x"]
    {
        for args in commands(url, data.to_str().unwrap()) {
            let (code, said) = failure(&run(&args));
            let words = ["registry", url, "zookeeper://host:port,host:port/path"];
            assert_eq!(code, Some(2), "{args:?}: {said}");
            assert!(words.iter().all(|word| said.contains(word)), "{args:?}: {said}");
        }
    }
    assert!(!data.exists(), "nothing was created before the settings were checked");
}

#[test]
fn where_nobody_answers_every_command_fails_soon_and_names_the_hosts() {
    let home = tempfile::tempdir().unwrap();
    // Takes connections, and never says a word.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hosts = format!("{NOBODY},{}", silent.local_addr().unwrap());
    let url = format!("zookeeper://{hosts}/xuid");
    for args in commands(&url, home.path().join("data").to_str().unwrap()) {
        let begin = now();
        let (code, said) = failure(&xuid(&args).env("XUID_SESSION", "1s").output().unwrap());
        assert_eq!(code, Some(1), "{args:?}: {said}");
        assert!(said.contains(&hosts) && said.contains("are they up"), "{args:?}: {said}");
        assert!(begin.elapsed().as_secs() < 10, "{args:?} took {:?}", begin.elapsed());
    }
}

/// The kernel would end it for want of a handler, but not where it is process 1 of a container: there a signal without a handler
/// is no signal, and the stop that it asked for never comes.
#[test]
fn a_signal_in_the_middle_of_a_start_is_heard_by_the_server_itself() {
    for signal in ["TERM", "INT"] {
        let home = tempfile::tempdir().unwrap();
        // Takes connections, and never says a word: an ensemble in a fail-over.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("zookeeper://{}/xuid", silent.local_addr().unwrap());
        let [serve, ..] = commands(&url, home.path().to_str().unwrap());
        let mut starting = xuid(&serve).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let _asked = silent.accept().unwrap();
        let begin = now();
        let told = Command::new("kill").args([&format!("-{signal}"), &starting.id().to_string()]).status();
        assert!(told.unwrap().success());
        let ended = starting.wait().unwrap();
        assert_eq!(ended.code(), Some(1), "{ended:?}");
        // Before the ensemble's time is over, which is a session's.
        assert!(begin.elapsed() < Duration::from_secs(5), "it went on for {:?}", begin.elapsed());
    }
}

#[test]
fn a_floor_is_the_ensembles_and_a_server_that_is_given_one_is_told() {
    let home = tempfile::tempdir().unwrap();
    let [mut serve, ..] = commands("zookeeper://127.0.0.1:1/xuid", home.path().to_str().unwrap());
    serve.extend(["--floor", "-3h"]);
    let (code, said) = failure(&run(&serve));
    assert!(code == Some(1) && said.contains("floor is for a local registry"), "{said}");
    serve.truncate(serve.len() - 2);
    assert!(!failure(&run(&serve)).1.contains("floor"), "nobody asked for one");
}

#[test]
fn credentials_are_asked_for_in_one_place_and_never_shown() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("secret");
    let file = path.to_str().unwrap();
    let url = "zookeeper://127.0.0.1:1/xuid";
    let wrong = |variables: &[(&str, &str)], more: &[&str], words: &[&str]| {
        for mut args in commands(url, home.path().to_str().unwrap()) {
            args.extend(more);
            let (code, said) = failure(&xuid(&args).envs(variables.iter().copied()).output().unwrap());
            assert_eq!(code, Some(2), "{args:?}: {said}");
            assert!(words.iter().all(|word| said.contains(word)), "{args:?}: {said}");
            assert!(!said.contains("hunter2"), "{args:?}: {said}");
        }
    };
    wrong(&[("XUID_REGISTRY_AUTH", "hunter2")], &[], &["registry_auth", "user:password"]);
    wrong(&[], &["--registry-auth-file", file], &["registry_auth_file", file, "No such file"]);
    std::fs::write(&path, "hunter2").unwrap();
    wrong(&[("XUID_REGISTRY_AUTH_FILE", file)], &[], &["registry_auth_file", file, "user:password"]);
    std::fs::write(&path, "xuid:hunter2\n").unwrap();
    let both = ["registry_auth", "XUID_REGISTRY_AUTH", "--registry-auth-file", "one of them"];
    wrong(&[("XUID_REGISTRY_AUTH", "xuid:hunter2")], &["--registry-auth-file", file], &both);
    wrong(&[], &["--registry-auth", "xuid:hunter3"], &["--registry-auth"]);
}

#[test]
fn a_file_of_credentials_that_everybody_may_read_is_warned_of() {
    use std::os::unix::fs::PermissionsExt as _;

    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("secret");
    std::fs::write(&path, "xuid:hunter2\n").unwrap();
    for (mode, is_warned) in [(0o644, true), (0o600, false)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        for mut args in commands("zookeeper://127.0.0.1:1/xuid", home.path().to_str().unwrap()) {
            args.extend(["--registry-auth-file", path.to_str().unwrap()]);
            let (code, said) = failure(&run(&args));
            assert_eq!((code, said.contains("chmod 600")), (Some(1), is_warned), "{args:?}: {said}");
        }
    }
}

#[test]
fn the_folder_of_a_server_with_an_ensemble_is_inspected_too() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start(home.path(), &[], &[]);
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
    let folder = home.path().to_str().unwrap();
    let json = |args: &[&str]| -> serde_json::Value { serde_json::from_str(&stdout(&run(args))).unwrap() };
    let before = json(&["inspect", folder, "--json"]);
    // What is left is what such a server leaves.
    std::fs::remove_file(home.path().join("registry")).unwrap();
    std::fs::write(home.path().join("registry.zookeeper-0"), "{}").unwrap();
    let found = json(&["inspect", folder, "--json"]);
    assert_eq!(
        (&found["registry"], &found["cluster"]),
        (&serde_json::Value::Null, &before["registry"]["cluster"])
    );
    assert_eq!(found["spills"][0]["granted_upto"], "unknown");
    assert_eq!(found["spills"][0]["spill"], before["spills"][0]["spill"]);
    let text = stdout(&run(&["inspect", folder]));
    let cluster = found["cluster"].as_str().unwrap();
    assert!(text.contains(cluster) && text.contains("of an ensemble") && text.contains("spill-0"), "{text}");

    let (code, said) =
        failure(&run(&["serve", "--data-dir", folder, "--listen", "127.0.0.1:0", "--admin", "off"]));
    assert!(code == Some(1) && said.contains("--registry zookeeper://"), "somebody forgot it: {said}");

    let empty = home.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let (code, said) = failure(&run(&["inspect", empty.to_str().unwrap()]));
    assert!(code == Some(1) && said.contains("no data folder"), "{said}");
    std::fs::remove_file(home.path().join("spill-0")).unwrap();
    assert!(stdout(&run(&["inspect", folder])).contains(cluster), "without a spill it is still one");
}

#[test]
fn a_spill_is_shown_though_its_ensemble_does_not_answer() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start(home.path(), &[], &[]);
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
    std::fs::remove_file(home.path().join("registry")).unwrap();
    let url = format!("zookeeper://{NOBODY}/xuid");
    let output = run(&["inspect", home.path().to_str().unwrap(), "--registry", &url]);
    let (code, said) = failure(&output);
    assert!(
        code == Some(1) && said.contains("could not be read"),
        "the registry is a part of it: {code:?}, {said}"
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(NOBODY) && text.contains("are they up") && text.contains("unknown"), "{text}");
}
