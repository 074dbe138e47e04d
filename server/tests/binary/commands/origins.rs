//! What is told of where ids came from.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;

use crate::support::{Server, failure, get, run, stdout, until, xuid};

/// What these servers tell of the ids in a file to a reader that stands still behind the first line until all of them have ended
/// their connections.
fn told_over_idle_ends(ids: &Path, servers: &[Server]) -> String {
    let mut command = xuid(&["provenance", "-"]);
    for server in servers {
        command.args(["--server", &server.addr.to_string()]);
    }
    let piped =
        command.stdin(std::fs::File::open(ids).unwrap()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut all = String::new();
    out.read_line(&mut all).unwrap();
    let is_gone = |line: &str| line == "xuid_connections_open 0";
    for server in servers {
        until("a server has ended the connection", || get(server.admin, "/metrics").1.lines().any(is_gone));
    }
    out.read_to_string(&mut all).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    all
}

#[test]
fn where_many_ids_came_from_is_told_to_a_slow_reader_whatever_the_servers_idle_end() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &["--idle", "1s"], &[]);
    let ids = home.path().join("ids");
    // More than a pipe holds of what is told. The server knows these without a look into its folder.
    std::fs::write(&ids, "4194304\n".repeat(5_000)).unwrap();
    let all = told_over_idle_ends(&ids, &[server]);
    assert_eq!(all.lines().filter(|line| line.starts_with("4194304 ")).count(), 5_000);
}

#[test]
fn where_an_id_came_from_is_asked_of_servers_of_one_cluster_only() {
    let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let servers = homes.each_ref().map(|home| Server::start(home.path(), &[], &[]));
    let [one, other] = servers.each_ref().map(|server| server.addr.to_string());
    let own = homes[0].path().to_str().unwrap();
    let (both, own) = (["--server", &one, "--server", &other], ["--data-dir", own, "--server", &other]);
    for named in [both, own] {
        let (code, said) = failure(&run(&[&["provenance", "4194304"][..], &named].concat()));
        assert!(code == Some(1) && said.contains(&format!("{other} is of cluster")), "{code:?}: {said}");
    }
}

#[test]
fn a_data_folder_that_is_not_there_is_not_taken_for_one_that_knows_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (data, typo) = (home.path().join("data"), home.path().join("dta"));
    let (data, typo) = (data.to_str().unwrap(), typo.to_str().unwrap());
    stdout(&run(&["registry", "init", data]));
    for folders in [&["--data-dir", typo][..], &["--registry", data, "--data-dir", typo]] {
        let (code, said) = failure(&run(&[&["provenance", "4194304"][..], folders].concat()));
        assert!(code == Some(1) && said.contains(typo), "{code:?}: {said}");
    }
    stdout(&run(&["provenance", "4194304", "--data-dir", data]));
}

#[test]
fn what_cannot_be_read_of_where_an_id_came_from_is_told() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().to_str().unwrap();
    stdout(&run(&["registry", "init", data]));
    let ask = || run(&["provenance", "4194304", "--data-dir", data]);
    assert!(ask().stderr.is_empty(), "what is not there is nothing to be told");
    for name in ["windows.log", "spill-0"] {
        std::fs::create_dir(home.path().join(name)).unwrap();
        let output = ask();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains(&format!("{name} in {data}: ")), "{output:?}");
    }
}

#[test]
fn a_server_that_is_asked_late_for_the_first_time_is_connected_to_again() {
    let home = tempfile::tempdir().unwrap();
    let servers = [(); 2].map(|()| Server::start(home.path(), &["--idle", "1s"], &[]));
    let issued = stdout(&run(&["next", "--server", &servers[0].addr.to_string()]));
    let ids = home.path().join("ids");
    // Of all but the last one the first server says that they were not issued, so the second one is not asked.
    std::fs::write(&ids, "4194304\n".repeat(5_000) + &issued).unwrap();
    let all = told_over_idle_ends(&ids, &servers);
    assert!(all.lines().next().unwrap().contains("not issued"), "{all}");
    assert_eq!(all.lines().count(), 5_001);
}
