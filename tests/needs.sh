# shellcheck shell=bash
# What the tests and the campaigns need besides Rust: sourced by tests/run and tests/campaign.
# `install_needs WHO THING...` installs the things that are missing, and says which; WHO is named in complaints.

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
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
        apt-get:zookeeper) echo zookeeper ;;
        *:zookeeper) ;;
        apk:setpriv) echo setpriv ;;
        *:setpriv | *:prlimit) echo util-linux ;;
        *) echo "$1" ;;
    esac
}

# Its lists are updated once, and only when something is missing.
install() {
    case "$manager" in
        apt-get)
            as_root apt-get update -qq
            as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
            ;;
        dnf) as_root dnf install -y -q "$@" ;;
        apk) as_root apk add --quiet --update-cache "$@" ;;
        pacman) as_root pacman -Sy --noconfirm --needed "$@" ;;
        none)
            echo "$who: install these by hand, no package manager is known here: $*" >&2
            exit 1
            ;;
    esac
}

# A ZooKeeper to start private servers from: a package's jars, or a folder that the caller names.
has_zookeeper() { [ -n "${XUID_ZOOKEEPER_JARS:-}" ] || [ -e /usr/share/java/zookeeper.jar ]; }

# The library that shifts the clock of a process; distributions disagree about its folder.
has_faketime() {
    local found
    for found in /usr/lib/*/faketime/libfaketime.so.1 /usr/lib{,64}/faketime/libfaketime.so.1; do
        [ -e "$found" ] && return
    done
    return 1
}

# Whether a thing that tests may need is here.
has() {
    case "$1" in
        zookeeper) has_zookeeper ;;
        libfaketime) has_faketime ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

install_needs() {
    local who="$1" thing name packages=()
    shift
    command -v cargo >/dev/null || { echo "$who: no cargo: install Rust first" >&2; exit 1; }
    for thing in "$@"; do
        has "$thing" && continue
        name="$(package "$thing")"
        if [ -z "$name" ]; then
            echo "$who: no package of $thing is known here (package manager: $manager): unpack Apache" \
                "ZooKeeper 3.8 or newer, and set XUID_ZOOKEEPER_JARS to its lib folder" >&2
            exit 1
        fi
        packages+=("$name")
    done
    if [ ${#packages[@]} -gt 0 ]; then
        install "${packages[@]}"
        echo "installed: ${packages[*]}"
    else
        echo "nothing to install"
    fi
}
