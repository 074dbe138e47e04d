# shellcheck shell=bash
# The suites of tests/run. To add one: a line `suite`, and two functions, build_NAME and run_NAME.
#
# What build_NAME leaves, run_NAME finds built: it may call cargo again, which then builds nothing.
#
# waits      its tests wait most of the time: these suites run one after the other, at full priority
# measures   it also measures how long something takes: it runs alone, after all others
# works      it wants the processor: these run beside the others, with the time that is left over

# suite NAME waits|measures|works QUICK SECONDS WHAT -- THING...
# QUICK is yes or no; SECONDS is its time on two cores once it is built; the THINGs are installed first.
suite e2e waits yes 200 "the real binary, attacked from outside" -- python3 curl prlimit setpriv libfaketime
suite monitoring waits yes 60 "alerts, dashboard and status page by a real Prometheus and browser" -- prometheus chromium
suite campaigns waits no 220 "every campaign in its small size" -- curl java setpriv prlimit zookeeper libfaketime prometheus postgresql mariadb
suite zookeeper measures no 330 "servers on private ensembles, with faults, and server/packaging" -- java setpriv zookeeper libfaketime
suite databases waits yes 60 "named sequences: their stores in private databases, and several servers on each store, with faults" -- postgresql mariadb java setpriv zookeeper
suite fronts waits yes 60 "Redis clients of four languages, redis-cli and redis-benchmark, and curl, at the fronts for them" -- curl openssl redis-cli python3 venv node npm go
suite clients waits no 170 "the clients of all languages, driven by one set of stories, and their own tests" -- python3 venv go javac java mvn node npm
suite unit measures yes 160 "unit, property and doc tests, and the order of the source" -- java setpriv zookeeper
suite packages waits no 110 "packed crates from empty folders, packages, manifests, and the commands of the pages" -- python3 curl openssl redis-cli java setpriv zookeeper postgresql prometheus go ip debootstrap busybox
suite models works yes 20 "models of the ring and the threads' runs, in every interleaving (loom)"
suite benches works yes 5 "each benchmark once: what it checks before it measures"
suite lints works no 75 "format, lints and documentation without a warning"

# The release build, as it ships: of this package alone, because cargo joins the features of those it builds together.
server_binary() {
    cargo build --release -p xuid-server
}

# The test executables of tests/, by the suite that runs them.
of_e2e=(xuid_tests campaign idle e2e)
of_monitoring=(monitoring)
of_zookeeper=(clock_steps zookeeper packaging)
of_databases=(databases)
of_fronts=(fronts)
of_clients=(clients)
of_unit=(imports)

# Builds all of them at once, and writes the path of each in a line `NAME PATH`.
test_executables() {
    local messages name
    messages="$(cargo test --release -p xuid-tests --no-run --message-format=json-render-diagnostics)"
    sed -n 's/.*"target":{[^}]*"name":"\([^"]*\)".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\1 \2/p' <<<"$messages" \
        >"$logs/executables"
    while read -r name _; do
        case " ${of_e2e[*]} ${of_monitoring[*]} ${of_zookeeper[*]} ${of_databases[*]} ${of_fronts[*]} ${of_clients[*]} ${of_unit[*]} " in
            *" $name "*) ;;
            *) echo "no suite in tests/suites.sh runs the tests of '$name'"; return 1 ;;
        esac
    done <"$logs/executables"
}

# Runs test executables of xuid-tests, so many tests at once. Not by cargo: its lock may be held by a build beside.
executables() {
    local at_once="$1" name path failed=0
    shift
    export XUID_BIN="$target/release/xuid"
    for name in "$@"; do
        path="$(sed -n "s/^$name //p" "$logs/executables")"
        [ -x "$path" ] || { echo "no test executable is called $name"; return 1; }
        (cd tests && RUST_TEST_THREADS="${RUST_TEST_THREADS:-$at_once}" "$path" --nocapture) || failed=1
    done
    return "$failed"
}

build_e2e() { server_binary; test_executables; }
# Most of these tests wait for something most of the time (an idle minute, a deadline). What has to be measured alone is
# in an executable of its own.
run_e2e() { executables 10 "${of_e2e[@]}"; }

build_monitoring() { server_binary; test_executables; }
run_monitoring() { executables 4 "${of_monitoring[@]}"; }

build_zookeeper() { server_binary; test_executables; }
# Few at once: each starts up to three servers of Java, and measures fail-over. Those whose clock steps are in an executable
# of their own: a switch of worker waits for Java, and is not to wait for others.
run_zookeeper() { executables 3 "${of_zookeeper[@]}"; }

build_databases() { server_binary; test_executables; }
# Each test has servers of its own, which wait for their disks most of the time.
run_databases() { executables 4 "${of_databases[@]}"; }

# Redis libraries, at the versions that the tests are written for, below the target folder: nothing of it is committed.
redis_clients() {
    local home="$target/tests/redis-clients" source=tests/clients/redis
    mkdir -p "$home/node"
    [ -x "$home/python/bin/pip" ] || python3 -m venv "$home/python"
    "$home/python/bin/pip" install --quiet --disable-pip-version-check 'redis==8.1.0'
    cp "$source"/*.mjs "$source/package.json" "$home/node/"
    npm install --prefix "$home/node" --no-audit --no-fund --no-package-lock --silent
    (cd "$source/go" && go build -o "$home/go-redis" .)
}

# What holds a server against its own OpenAPI document.
schemathesis() {
    local home="$target/tests/schemathesis"
    [ -x "$home/bin/pip" ] || python3 -m venv "$home"
    "$home/bin/pip" install --quiet --disable-pip-version-check 'schemathesis==4.32.5'
}

build_fronts() { server_binary; test_executables; redis_clients; schemathesis; }
run_fronts() {
    XUID_REDIS_CLIENTS="$target/tests/redis-clients" XUID_SCHEMATHESIS="$target/tests/schemathesis/bin/schemathesis" executables 4 "${of_fronts[@]}"
}

# The Rust client's programs are built here; the tests build those of the other languages, which takes seconds.
build_clients() { server_binary; test_executables; cargo build --release -p xuid-client --examples; }
# A program in each of several languages, beside its server: as many as two cores bear. Then each library's own tests, by the
# runner of its language, and once the programs that measure them.
run_clients() {
    local failed=0 home=server/clients
    XUID_RUST_CONFORM="$target/release/examples/conform" executables 6 "${of_clients[@]}" || failed=1
    export XUID_BIN="$target/release/xuid"
    (cd $home/python && python3 -m unittest) || failed=1
    (cd $home/node && npm test) || failed=1
    (cd $home/go && go test -race ./...) || failed=1
    mvn --batch-mode --quiet --file $home/java/pom.xml verify || failed=1
    $home/bench 0.1 1 || failed=1
    return "$failed"
}

build_campaigns() { XUID_BUILD_ONLY=1 tests/campaign all quick; }
# Again, although an earlier run may be recorded: a test command tests.
run_campaigns() { tests/campaign all quick --again; }

build_unit() {
    test_executables
    cargo test --workspace --exclude xuid-tests --no-run
    cargo test --release -p xuid-id --features serde --no-run
}
run_unit() {
    local failed=0
    executables 2 "${of_unit[@]}" || failed=1
    cargo test --workspace --exclude xuid-tests --no-fail-fast || failed=1
    cargo test --release -p xuid-id --features serde || failed=1
    return "$failed"
}

# The crates are built from what is packed of them, so nothing of another build can be used.
build_packages() {
    server_binary
    tests/packages/crates build
    # Without it the suite tells what it does not try.
    if may_make_roots; then tests/packages/debian build; fi
}
may_make_roots() { unshare --net --mount --pid --fork true 2>/dev/null; }
# All but the crates need namespaces of their own; there they wait most of the time, beside each other. A namespace keeps a copy of
# each mount, so no test with a disk of its own may run meanwhile.
run_packages() {
    local failed=0 part beside=()
    export XUID_BIN="$target/release/xuid"
    tests/packages/crates run || failed=1
    tests/packages/licences || failed=1
    tests/packages/pages links || failed=1
    if ! may_make_roots; then
        [ "${CI:-}" != true ] || failed=1
        echo "packages in roots and networks of their own: only root may make them" | tee -a "$XUID_NOT_TRIED"
        return "$failed"
    fi
    tests/packages/static "$target/tests/packages/installed/bin/xuid" || failed=1
    for part in debian kubernetes/pods golden pages; do
        tests/packages/$part >"$logs/packages-${part%/*}" 2>&1 &
        beside+=($!)
    done
    for part in "${beside[@]}"; do wait "$part" || failed=1; done
    cat "$logs"/packages-*
    return "$failed"
}

# A model runs every interleaving up to its bounds: optimised, and apart from the ordinary builds.
models() { RUSTFLAGS="--cfg loom" cargo test -p xuid-engine --release --lib --target-dir "$target/loom" "$@"; }
build_models() { models --no-run; }
run_models() { models loom; }

# Without what a profiler reads: so the crates of others are those of the release build.
benches() {
    CARGO_PROFILE_BENCH_DEBUG=false cargo bench -p xuid-benches --bench hot_path --bench bulk --bench ordered --bench tiers --bench spill --bench codec \
        --bench registry --bench sequences "$@"
}
build_benches() { benches --no-run; }
run_benches() { benches -- --test; }

# What they find is told by the run: what was checked once is not checked again.
build_lints() { run_lints || true; }
run_lints() {
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
}
