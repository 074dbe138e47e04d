# shellcheck shell=bash
# What the tests and the campaigns need besides Rust: sourced by tests/run and tests/campaign.
#
#   check_basics WHO FOLDER GIB   cargo, a C compiler, git, and so much room for what is built in the folder
#   missing WHO THING...          the packages of those things that are not here, a line each
#   install_needs WHO THING...    installs them; root is asked for only if one is missing
#
# Each ends the script with a sentence that says what to do, and begins it with WHO.

complain() {
    local who="$1"
    shift
    echo "$who: $*" >&2
    exit 1
}

# The package manager of this system, of those that are common.
manager=none
for known in apt-get dnf apk pacman; do
    command -v "$known" >/dev/null && { manager="$known"; break; }
done

# What a thing is called here; nothing when this system has no package of it.
package() {
    case "$manager:$1" in
        apt-get:java) echo default-jre-headless ;;
        dnf:java) echo java-latest-openjdk-headless ;;
        apk:java) echo openjdk17-jre-headless ;;
        pacman:java) echo jre-openjdk-headless ;;
        apt-get:javac) echo default-jdk-headless ;;
        dnf:javac) echo java-latest-openjdk-devel ;;
        apk:javac) echo openjdk17-jdk ;;
        pacman:javac) echo jdk-openjdk ;;
        apt-get:go | dnf:go) echo golang ;;
        *:node) echo nodejs ;;
        apt-get:zookeeper) echo zookeeper ;;
        dnf:ip) echo iproute ;;
        *:ip) echo iproute2 ;;
        apt-get:busybox) echo busybox-static ;;
        apt-get:redis-cli) echo redis-tools ;;
        *:redis-cli) echo redis ;;
        apt-get:mvn | dnf:mvn | apk:mvn | pacman:mvn) echo maven ;;
        apt-get:venv) echo python3-venv ;;
        *:venv) echo python3 ;;
        *:zookeeper) ;;
        dnf:postgresql) echo postgresql-server ;;
        apt-get:mariadb | dnf:mariadb) echo mariadb-server ;;
        dnf:prometheus) echo golang-github-prometheus ;;
        apk:setpriv) echo setpriv ;;
        *:setpriv | *:prlimit) echo util-linux ;;
        *) echo "$1" ;;
    esac
}

# The command that installs packages here, as it is run and shown.
installer() {
    case "$manager" in
        apt-get) echo "apt-get install -y -qq --no-install-recommends" ;;
        dnf) echo "dnf install -y -q" ;;
        apk) echo "apk add --quiet --update-cache" ;;
        pacman) echo "pacman -Sy --noconfirm --needed" ;;
    esac
}

# A ZooKeeper to start private servers from. XUID_ZOOKEEPER_JARS is the folder of its jars, ZOOKEEPER_HOME an unpacked
# archive of Apache's; else the package's jars, or an archive in a usual place.
find_zookeeper() {
    local folder
    if [ -n "${XUID_ZOOKEEPER_JARS:-}" ]; then
        compgen -G "$XUID_ZOOKEEPER_JARS/zookeeper*.jar" >/dev/null && return
        complain "$1" "XUID_ZOOKEEPER_JARS=$XUID_ZOOKEEPER_JARS has no zookeeper*.jar; name the lib folder of an" \
            "unpacked Apache ZooKeeper"
    fi
    if [ -n "${ZOOKEEPER_HOME:-}" ]; then
        compgen -G "$ZOOKEEPER_HOME/lib/zookeeper*.jar" >/dev/null ||
            complain "$1" "ZOOKEEPER_HOME=$ZOOKEEPER_HOME has no lib/zookeeper*.jar; name the folder of an unpacked" \
                "Apache ZooKeeper 3.8 or newer"
        XUID_ZOOKEEPER_JARS="$(realpath "$ZOOKEEPER_HOME/lib")"
        export XUID_ZOOKEEPER_JARS
        return
    fi
    [ -e /usr/share/java/zookeeper.jar ] && return
    for folder in /opt/{,apache-}zookeeper*/lib /usr/{local,share}/{,apache-}zookeeper*/lib; do
        compgen -G "$folder/zookeeper*.jar" >/dev/null && { export XUID_ZOOKEEPER_JARS="$folder"; return; }
    done
    return 1
}

# The library that shifts the clock of a process; distributions disagree about its folder.
has_faketime() {
    local found
    for found in /usr/lib/*/faketime/libfaketime.so.1 /usr/lib{,64}/faketime/libfaketime.so.1; do
        [ -e "$found" ] && return
    done
    return 1
}

# PostgreSQL's own programs; Debian keeps each version's apart, in nobody's path.
has_postgres() {
    compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null
}

# Debian starts a server when its package is installed. The tests start their own.
stop_servers() {
    local service
    for service in "$@"; do
        "${as_root[@]}" systemctl disable --now "$service" >/dev/null 2>&1 ||
            "${as_root[@]}" service "$service" stop >/dev/null 2>&1 || true
    done
}

# Whether a thing that tests may need is here.
has() {
    case "$2" in
        zookeeper) find_zookeeper "$1" ;;
        libfaketime) has_faketime ;;
        postgresql) has_postgres ;;
        redis-cli) command -v redis-cli >/dev/null && command -v redis-benchmark >/dev/null ;;
        # One that runs where there is no library.
        busybox) command -v busybox >/dev/null && ! grep -q '=>' <<<"$(ldd "$(command -v busybox)" 2>/dev/null)" ;;
        venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
        mariadb) command -v mariadbd >/dev/null && command -v mariadb-install-db >/dev/null ;;
        *) command -v "$2" >/dev/null ;;
    esac
}

missing() {
    local who="$1" thing name
    shift
    for thing in "$@"; do
        has "$who" "$thing" && continue
        name="$(package "$thing")"
        [ -n "$name" ] || complain "$who" "$thing is not found, and no package of it is known here (package manager:" \
            "$manager): unpack Apache ZooKeeper 3.8 or newer (https://zookeeper.apache.org/releases.html), and set" \
            "ZOOKEEPER_HOME to its folder"
        echo "$name"
    done | sort -u
}

install_needs() {
    local who="$1" names packages as_root=()
    names="$(missing "$@")" || exit 1
    # Once more, because the search above was made in a subshell, and the place of ZooKeeper is exported.
    case " $* " in *" zookeeper "*) find_zookeeper "$who" || true ;; esac
    [ -n "$names" ] || return 0
    mapfile -t packages <<<"$names"
    [ "$manager" != none ] || complain "$who" "install these by hand, no package manager is known here: ${packages[*]}"
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null ||
            complain "$who" "this user may not install packages; as root: $(installer) ${packages[*]}"
        as_root=(sudo)
    fi
    [ "$manager" != apt-get ] || "${as_root[@]}" apt-get update -qq
    # shellcheck disable=SC2046  # a command of several words
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive $(installer) "${packages[@]}"
    case " ${packages[*]} " in *" postgresql "*) stop_servers postgresql ;; esac
    case " ${packages[*]} " in *" mariadb-server "*) stop_servers mariadb ;; esac
    echo "installed: ${packages[*]}"
}

# GiB that are free where this folder is, or will be.
free_gib() {
    local place="$1"
    while [ ! -d "$place" ]; do place="$(dirname "$place")"; done
    df -Pk "$place" | awk 'NR == 2 { print int($4 / 1048576) }'
}

check_basics() {
    local who="$1" target="$2" gib="$3" free
    command -v cargo >/dev/null || complain "$who" "no cargo: install Rust first (https://rustup.rs)"
    command -v cc >/dev/null || complain "$who" "no C compiler, which Rust links with: install gcc" \
        "(Debian and Ubuntu: build-essential; Fedora: gcc; Alpine: build-base; Arch: base-devel)"
    command -v git >/dev/null || complain "$who" "no git, which names the code that is tested: install git"
    free="$(free_gib "$target")"
    [ "$free" -ge "$gib" ] || complain "$who" "$target has $free GiB of room, and what is built takes $gib:" \
        "make room, or set CARGO_TARGET_DIR to a folder on another disk"
    free="$(free_gib "${TMPDIR:-/tmp}")"
    [ "$free" -ge 1 ] || complain "$who" "${TMPDIR:-/tmp} has less than 1 GiB of room, and the tests' data folders lie" \
        "there: make room, or set TMPDIR to a folder on another disk"
}
