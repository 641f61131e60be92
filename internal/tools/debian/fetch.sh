#!/bin/sh
# fetch.sh SUITE PACKAGES FOLDER PROGRAM...
#
# Fetches packages of a suite of Debian's, newer suites than this machine's too, and the
# packages that it depends on, below FOLDER, and lets each PROGRAM, a path in a package,
# run from there with the libraries and the loader of that suite. Nothing is installed,
# and no rights are needed; Debian's keys are checked as always.
set -eu
suite=$1 packages=$2 folder=$3
shift 3
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
keys=/usr/share/keyrings/debian-archive-keyring.gpg

mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir -p lists/partial cache/archives/partial tree
: >status
echo "deb [signed-by=$keys] $mirror $suite main" >sources.list
apt() {
	apt-get -q -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- \
		-o Dir::State="$work" -o Dir::State::status="$work/status" -o Dir::State::lists="$work/lists" \
		-o Dir::Cache="$work/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none \
		-o Debug::NoLocking=true "$@"
}
apt update
apt install --yes --download-only --no-install-recommends $packages
for deb in cache/archives/*.deb; do
	dpkg-deb -x "$deb" tree
done

# The programs look for their data beside themselves, so each keeps its place.
# The C library is in /lib in older suites.
lib=$(cd tree && ls -d usr/lib/*-linux-gnu)
loader=$(cd tree && ls -d usr/lib/*-linux-gnu/ld-linux-*.so.* lib/*-linux-gnu/ld-linux-*.so.* 2>/dev/null | head -n 1)
for program; do
	up=$(dirname "$program" | sed 's|[^/][^/]*|..|g')
	mv "tree/$program" "tree/$program.real"
	cat >"tree/$program" <<END
#!/bin/sh
root=\$(cd "\$(dirname "\$0")/$up" && pwd)
exec "\$root/$loader" --library-path "\$root/$lib:\$root/$(dirname "$loader")" "\$root/$program.real" "\$@"
END
	chmod +x "tree/$program"
done
chmod -R go+rX tree
rm -rf "$folder"
mv tree "$folder"
