#!/bin/sh
# install.sh [--mount-helper] [PREFIX]: installs h5logfs below PREFIX (/usr/local), for all users or for one.
# install.sh --uninstall [PREFIX]: removes what it has installed there. PREFIX/share/h5logfs/uninstall.sh does that, too.
#
# --mount-helper: also makes /sbin/mount.h5logfs, for `mount -t h5logfs` and fstab. Needs root.
#
# A file of an installation before is replaced, and removed where this release has none. Running daemons keep theirs.
set -eu
umask 022

fail() {
    printf 'install.sh: %s\n' "$@" >&2
    exit 1
}

helper=
uninstall=
while [ $# -gt 0 ]; do
    case $1 in
    --mount-helper) helper=/sbin/mount.h5logfs ;;
    --uninstall) uninstall=yes ;;
    -h | --help)
        sed -n '2,7s/^# \{0,1\}//p' "$0"
        exit
        ;;
    -*) fail "there is no option $1; --help shows them" ;;
    *) break ;;
    esac
    shift
done
[ $# -le 1 ] || fail "one PREFIX is expected, not $#"

own=$(cd "$(dirname "$0")" && pwd)
# What was installed tells where.
[ $# -eq 1 ] || [ ! -e "$own/installed.txt" ] || set -- "$own/../.."
prefix=${1:-/usr/local}
case $prefix in
/*) ;;
*) prefix=$PWD/$prefix ;;
esac
case $prefix in
*[\|\&\\]* | *'
'*) fail "PREFIX has a character that is not possible in it: $prefix" ;;
esac

# Lists what was installed: files, and with a slash at the end directories that install.sh has made. Paths are below PREFIX; that of
# the helper of mount(8) is absolute.
list=share/h5logfs/installed.txt

remove() {
    [ -e "$prefix/$list" ] || fail "nothing was installed in $prefix: there is no $prefix/$list"
    # As long as the list is there, this can be repeated.
    grep -v -x -e "$list" -e '.*/' "$prefix/$list" | while IFS= read -r file; do
        case $file in
        /*) [ "$(readlink "$file")" != "$prefix/bin/h5logfs" ] || rm -f "$file" ;;
        *) rm -f "$prefix/$file" ;;
        esac
    done
    directories=$(grep '/$' "$prefix/$list" | sort -r)
    rm -f "$prefix/$list"
    printf '%s\n' "$directories" | while IFS= read -r directory; do
        case $directory in
        '') ;;
        # What others have put there stays.
        ./) rmdir "$prefix" 2>/dev/null || : ;;
        *) rmdir "$prefix/$directory" 2>/dev/null || : ;;
        esac
    done
}

if [ -n "$uninstall" ]; then
    prefix=$(cd "$prefix" && pwd) || fail "there is no $prefix"
    remove
    exit
fi

cd "$own"
[ -e contents.txt ] || fail "this is not an unpacked archive of h5logfs: there is no $own/contents.txt"
if command -v sha256sum >/dev/null; then
    sha256sum --check --quiet SHA256SUMS || fail "files of the archive are damaged, or missing"
fi
if [ -n "$helper" ] && [ "$(id -u)" -ne 0 ]; then
    fail "--mount-helper makes $helper, for which root is needed"
fi

made=
# Makes a directory below PREFIX, with those above it.
make_directory() {
    [ -d "$prefix/$1" ] && return
    case $1 in
    */*) make_directory "${1%/*}" ;;
    esac
    mkdir "$prefix/$1" || fail "nothing more was installed"
    made="$made$1/
"
}

if [ ! -d "$prefix" ]; then
    mkdir -p "$prefix" || fail "nothing was installed"
    made='./
'
fi
prefix=$(cd "$prefix" && pwd)
make_directory share
make_directory share/h5logfs
before=
[ ! -e "$prefix/$list" ] || before=$(cat "$prefix/$list")

# The list comes first, so that what an interrupted installation leaves can be removed.
directories=$(sed -n 's|/[^/]*$||p' contents.txt | sort -u)
for directory in $directories; do
    make_directory "$directory"
done
{
    cat contents.txt
    echo share/h5logfs/uninstall.sh
    echo $list
    [ -z "$helper" ] || echo "$helper"
    printf '%s' "$made"
    printf '%s\n' "$before" | grep '/$' || :
    # An installation before may have made the helper.
    [ -n "$helper" ] || printf '%s\n' "$before" | grep '^/' || :
} | sort -u >"$prefix/$list.new"
mv "$prefix/$list.new" "$prefix/$list"

new=$prefix/share/h5logfs/new
while IFS= read -r file; do
    rm -f "$new"
    if [ -L "$file" ]; then
        cp -P "$file" "$new"
    else
        # Pages, units and the like name the place.
        case $file in
        *.pc | *.service | share/h5logfs/modulefiles/*) sed "s|/@PREFIX@|$prefix|g" "$file" >"$new" ;;
        *) cp "$file" "$new" ;;
        esac
        if [ -x "$file" ]; then chmod 755 "$new"; else chmod 644 "$new"; fi
    fi
    mv -f "$new" "$prefix/$file"
done <contents.txt
cp install.sh "$new"
# Beside the list it removes what was installed; asked for nothing, that alone.
sed -i 's/^uninstall=$/uninstall=yes/' "$new"
chmod 755 "$new"
mv -f "$new" "$prefix/share/h5logfs/uninstall.sh"
printf '%s\n' "$before" | grep -v '/$' | grep -v -x -F -f "$prefix/$list" | while IFS= read -r file; do
    case $file in
    '' | /*) ;;
    *) rm -f "$prefix/$file" ;;
    esac
done || :
[ -z "$helper" ] || ln -sfn "$prefix/bin/h5logfs" "$helper"

echo "h5logfs is installed in $prefix; $prefix/share/h5logfs/uninstall.sh removes it."
case :$PATH: in
*:"$prefix/bin":*) ;;
*) echo "To use it: export PATH=$prefix/bin:\$PATH" ;;
esac
