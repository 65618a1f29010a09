#!/bin/sh
# Installs the program with its units, shell completions, manual pages and examples, for packages and by hand:
#     packaging/install.sh target/release/mainstay
# DESTDIR is a folder in place of the system's root, PREFIX one in place of /usr.
set -eu

program=${1:?usage: packaging/install.sh PROGRAM}
source=$(dirname "$0")
prefix=${DESTDIR:-}${PREFIX:-/usr}
# Beside the program as built, which may be for another machine, MAINSTAY is one that runs here.
run=${MAINSTAY:-$program}

install -d "$prefix/bin" "$prefix/lib/systemd/system" "$prefix/share/man/man1" "$prefix/share/doc/mainstay/examples" \
    "$prefix/share/bash-completion/completions" "$prefix/share/zsh/site-functions" "$prefix/share/fish/vendor_completions.d"
install -m 755 "$program" "$prefix/bin/mainstay"
install -m 644 "$source"/*.service "$prefix/lib/systemd/system"
install -m 644 "$source"/../examples/*.toml "$prefix/share/doc/mainstay/examples"
"$run" completions bash >"$prefix/share/bash-completion/completions/mainstay"
"$run" completions zsh >"$prefix/share/zsh/site-functions/_mainstay"
"$run" completions fish >"$prefix/share/fish/vendor_completions.d/mainstay.fish"
"$run" man --output "$prefix/share/man/man1"
