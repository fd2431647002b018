#!/usr/bin/env bash
# release-check.sh: whether this tree can be tagged as a release. Prints what is wrong, all of it, and fails if there is something.
#
# WRITER_LIBRARY: the C library, whose functions are looked at, too, if it was built.
set -euo pipefail
cd "$(dirname "$0")/.."

wrong=0
problem() {
    wrong=$((wrong + 1))
    printf 'release-check: %s\n' "$@" >&2
}

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

# One place has the version, and all others follow it.
check_version() {
    [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || problem "Cargo.toml: version \"$version\" is not MAJOR.MINOR.PATCH"
    local manifest line
    for manifest in crates/*/Cargo.toml crates/plugins/*/Cargo.toml; do
        grep -q '^version.workspace = true$' "$manifest" || problem "$manifest: its version is not that of the workspace"
    done
    while IFS= read -r line; do
        # No registry asks for the version of what only tests use.
        [[ $line == *"version = \"$version\""* || $line != *version* ]] || problem "Cargo.toml: another version than $version: $line"
    done < <(grep -E '^h5logfs-[a-z-]+ = \{ path' Cargo.toml)
    local locked
    locked=$(awk '/^name = "h5logfs/ { getline; gsub(/version = |"/, ""); print }' Cargo.lock | sort -u | tr '\n' ' ')
    [ "$locked" = "$version " ] || problem "Cargo.lock: it has h5logfs of version $locked, and not $version"
    grep -qx "version: $version" CITATION.cff || problem "CITATION.cff: its version is not $version"
}

# The top section is that of the version, with a date, and nothing waits for a later one.
check_changelog() {
    local top
    top=$(grep -m 1 '^## ' CHANGELOG.md)
    if [[ $top == "## Unreleased"* ]] && grep -q "^## $version " CHANGELOG.md; then
        problem "CHANGELOG.md: $version is released already, and there are changes under Unreleased: raise the version in Cargo.toml"
    elif [[ $top == "## Unreleased"* ]]; then
        problem "CHANGELOG.md: there are changes under Unreleased: give them the heading \"## $version (YEAR-MONTH-DAY)\""
    elif ! [[ $top =~ ^"## $version ("[0-9]{4}-[0-9]{2}-[0-9]{2}")"$ ]]; then
        problem "CHANGELOG.md: the top section is \"$top\", and not \"## $version (YEAR-MONTH-DAY)\""
    fi
    local day
    day=$(sed -n 's/^date-released: //p' CITATION.cff)
    [[ $top == *"($day)" ]] || problem "CITATION.cff: date-released is $day, and the CHANGELOG has \"$top\""
}

# The table of the formats, and the numbers in the code.
check_formats() {
    local table=docs/formats/versions.md rows=0 name number file constant found
    while IFS='|' read -r _ name number _ file _; do
        [[ $file == *'`: `'* ]] || continue
        rows=$((rows + 1))
        constant=$(sed 's/.*`: `\([A-Z_]*\)`.*/\1/' <<<"$file")
        file=$(sed 's/^ *`\([^`]*\)`.*/\1/' <<<"$file")
        found=$(sed -n "s/.*const $constant: u[0-9]* = \([0-9]*\);.*/\1/p" "$file" | head -n 1)
        [ "$found" = "$(tr -d ' ' <<<"$number")" ] ||
            problem "$table: $(xargs <<<"$name"): the table has $(xargs <<<"$number"), and $file has ${found:-no $constant}"
    done <"$table"
    [ "$rows" -gt 0 ] || problem "$table: it has no rows"
}

# What the C library offers. Within one major version nothing that programs may use goes away.
check_functions() {
    local list=packaging/libh5logfs_writer.symbols
    local header declared listed
    header=$(mktemp)
    trap 'rm -f "$header"' RETURN
    # Preprocessor lines and comments have no declarations.
    grep -oE '^(int|const char) \*?h5logfs_[a-z0-9_]+\(' include/h5logfs_writer.h | grep -oE 'h5logfs_[a-z0-9_]+' | sort >"$header"
    declared=$(cat "$header")
    listed=$(awk '!/^#/ && NF { print $1 }' "$list" | sort)
    local name
    for name in $(comm -13 "$header" <(echo "$listed")); do
        problem "$list: $name is gone from the header: that takes a new major version, and a new name of the library"
    done
    for name in $(comm -23 "$header" <(echo "$listed")); do
        problem "$list: $name is new: add the line \"$name $version\""
    done
    local since
    while read -r name since; do
        [ "$(printf '%s\n' "$since" "$version" | sort -V | head -n 1)" = "$since" ] ||
            problem "$list: $name is there since $since, and this is $version"
    done < <(awk '!/^#/ && NF' "$list")
    if [ -e "${WRITER_LIBRARY:-}" ]; then
        local offered
        offered=$(nm --dynamic --defined-only --format=just-symbols "$WRITER_LIBRARY" | sort)
        [ "$offered" = "$declared" ] || problem "$WRITER_LIBRARY: its functions are not those of the header:" \
            "$(diff <(echo "$declared") <(echo "$offered") | grep '^[<>]' | tr '\n' ' ')"
    else
        echo "release-check: the C library was not built, so the header alone was looked at (make build-writer)" >&2
    fi
}

check_version
check_changelog
check_formats
check_functions
if [ "$wrong" -gt 0 ]; then
    echo "release-check: $wrong problems: $version cannot be tagged" >&2
    exit 1
fi
echo "release-check: $version can be tagged: git tag v$version"
