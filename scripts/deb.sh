#!/usr/bin/env bash
# deb.sh PACKAGE STAGE DIRECTORY: packs what `make install` has put below STAGE as a Debian package in DIRECTORY. PACKAGE is h5logfs
# or h5logfs-writer; packaging/debian and packaging/debian-writer have what belongs to each. dpkg-deb packs within a second, so no
# packaging tool has to be compiled. Needs dpkg-dev and binutils.
set -euo pipefail
cd "$(dirname "$0")/.."
package=$1 stage=$(realpath "$2") out=$3
case $package in
h5logfs) from=packaging/debian manifest=Cargo.toml ;;
h5logfs-writer) from=packaging/debian-writer manifest=crates/writer/Cargo.toml ;;
*)
    echo "usage: deb.sh h5logfs|h5logfs-writer STAGE DIRECTORY" >&2
    exit 2
    ;;
esac
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Debug information is removed first, because it takes most of the room.
while read -r file; do
    case $file in
    *.so*) strip --strip-unneeded "$file" ;;
    *) strip "$file" ;;
    esac
done < <(find "$stage/usr/bin" "$stage/usr/lib" -type f \( -path '*/bin/*' -o -name '*.so*' \))
find "$stage/usr/share/man" -type f -name '*.[0-9]' -exec gzip -9n {} +

# The packages of the libraries that programs and libraries are linked to. The plug-ins use the HDF5 of the program that loads them.
mkdir "$work/debian"
printf 'Source: %s\n\nPackage: %s\nArchitecture: any\n' "$package" "$package" >"$work/debian/control"
find "$stage/usr/bin" "$stage/usr/lib" -type f \( -path '*/bin/*' -o -name '*.so*' \) -print0 |
    (cd "$work" && xargs -0 dpkg-shlibdeps -O -e) >"$work/shlibs" 2>"$work/complaints" || {
    cat "$work/complaints" >&2
    exit 1
}
libraries=$(sed -n 's/^shlibs:Depends=//p' "$work/shlibs")

install -d -m 755 "$stage/DEBIAN" "$stage/usr/share/doc/$package"
{
    printf 'Upstream-Name: h5logfs\n\n'
    cat LICENSE LICENSE-MIT
    printf '\nOn Debian systems /usr/share/common-licenses/Apache-2.0 has the Apache License.\n'
} >"$stage/usr/share/doc/$package/copyright"
chmod 644 "$stage/usr/share/doc/$package/copyright"
(cd "$stage" && find usr -type f | LC_ALL=C sort | xargs -d '\n' md5sum) >"$stage/DEBIAN/md5sums"
synopsis=$(sed -n 's/^description = "\(.*\)"/\1/p' $manifest | head -n 1)
sed -e "s|@VERSION@|$version-1|" -e "s|@ARCHITECTURE@|$architecture|" -e "s|@LIBRARIES@|$libraries|" -e "s|@SYNOPSIS@|$synopsis|" \
    -e "s|@SIZE@|$(du -sk "$stage/usr" | cut -f 1)|" $from/control.in >"$stage/DEBIAN/control"
for script in postinst prerm postrm; do
    [ ! -e "$from/$script" ] || install -m 755 "$from/$script" "$stage/DEBIAN/$script"
done
install -m 644 packaging/debian-writer/triggers "$stage/DEBIAN/triggers"

mkdir -p "$out"
file=$out/${package}_$version-1_$architecture.deb
# Compression takes most of the time.
dpkg-deb --root-owner-group ${DEB_COMPRESSION:+-Z"$DEB_COMPRESSION"} --build "$stage" "$file" >/dev/null
echo "$file ($(($(stat -c %s "$file") / 1048576)) MiB)"
