#!/bin/sh
# Makes the signed test archive in this folder anew: `sh make.sh`. Needs GnuPG 2 and xz.
# The keys are made here for these tests and thrown away; nothing is signed with them elsewhere.
set -eu
cd "$(dirname "$0")"
GNUPGHOME=$(mktemp -d)
export GNUPGHOME
trap 'gpgconf --kill all; rm -rf "$GNUPGHOME"' EXIT
gpg() { command gpg --batch --quiet --pinentry-mode loopback --passphrase '' "$@"; }

gpg --quick-generate-key 'Test archive <archive@example.org>' ed25519 sign never
gpg --quick-generate-key 'Stranger <stranger@example.org>' ed25519 sign never
gpg --faked-system-time 20200101T000000 --quick-generate-key 'Expired <expired@example.org>' ed25519 sign 1m
gpg --export archive@example.org expired@example.org > keyring.gpg
gpg --armor --export archive@example.org > keyring.asc
gpg --export stranger@example.org > stranger.gpg

rm -rf dists && mkdir -p dists
release() { # suite, further gpg options
    suite=$1
    shift
    folder=dists/$suite/main/binary-amd64
    mkdir -p "$folder"
    cp "Packages.$suite" "$folder/Packages"
    xz --keep --force "$folder/Packages"
    {
        printf 'Origin: Debian\nSuite: test\nCodename: %s\n' "$suite"
        printf 'Date: Wed, 18 Nov 2026 22:17:43 UTC\nValid-Until: Wed, 25 Nov 2026 22:17:43 UTC\n'
        printf 'Acquire-By-Hash: yes\nDescription: - a line that is dash-escaped? no\n- but this one is\nSHA256:\n'
        for file in Packages Packages.xz; do
            sum=$(sha256sum "$folder/$file" | cut -d' ' -f1)
            printf ' %s %s main/binary-amd64/%s\n' "$sum" "$(stat -c %s "$folder/$file")" "$file"
        done
    } > Release
    gpg --yes --output "dists/$suite/InRelease" "$@" --clearsign Release
    rm Release "$folder/Packages"
}
release trixie --local-user archive@example.org
release trixie-updates --local-user stranger@example.org --local-user archive@example.org
release trixie-security --local-user archive@example.org
cp dists/trixie/InRelease good
printf 'Origin: Debian\nCodename: trixie\n' > Release
gpg --yes --output expired --faked-system-time 20200110T000000 --local-user expired@example.org --clearsign Release
rm Release
