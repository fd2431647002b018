#!/usr/bin/env bash
# lines.sh: prints how large the project is: for each crate lines of Rust code, comments and tests within the crate, then the tests and
# benchmarks of the project, and the words of its documents. Empty lines do not count. A module of tests is the last item of its file.
set -euo pipefail
cd "$(dirname "$0")/.."

# count NAME FILE...: a row of the table.
count() {
    local name=$1
    shift
    [ $# -gt 0 ] || return 0
    awk -v name="$name" '
        FNR == 1 { in_tests = FILENAME ~ /\/tests(\/|\.rs$)/ }
        /^#\[cfg\(test\)\]$/ { last = FNR }
        /^mod tests \{$/ && last == FNR - 1 { in_tests = 1 }
        /^[ \t]*$/ { next }
        in_tests { tests++; next }
        /^[ \t]*\/\// { comments++; next }
        { code++ }
        END { printf "%-22s %8d %10d %8d\n", name, code, comments, tests }' "$@"
}

files() {
    git ls-files -- "$@" | grep '\.rs$' || true
}

sum() {
    awk '{ code += $2; comments += $3; tests += $4; print } END { printf "%-22s %8d %10d %8d\n", "sum", code, comments, tests }'
}

printf '%-22s %8s %10s %8s\n' crate code comments tests
{
    for crate in crates/*/ crates/plugins/*/; do
        [ -f "$crate/Cargo.toml" ] || continue
        mapfile -t of_crate < <(files "$crate")
        count "${crate#crates/}" "${of_crate[@]}"
    done
    mapfile -t program < <(files src)
    count src/ "${program[@]}"
} | sum

printf '\n%-22s %8s\n' 'tests, benchmarks' lines
for folder in tests benches fuzz; do
    mapfile -t of_folder < <(files "$folder")
    printf '%-22s %8d\n' "$folder/" "$(grep -h -v -c '^[ 	]*$' "${of_folder[@]}" | awk "{ sum += \$1 } END { print sum }")"
done

printf '\n%-22s %8s\n' documents words
git ls-files '*.md' | awk -F/ '{ name = $1; if (NF > 2 && $1 == "docs") name = $1 "/" $2; print name, $0 }' | sort |
    while read -r folder file; do printf '%s %d\n' "$folder" "$(wc -w <"$file")"; done |
    awk '{ words[$1] += $2; all += $2 } END { for (folder in words) printf "%-22s %8d\n", folder, words[folder]; printf "%-22s %8d\n", "sum", all }' |
    sort -k2 -n
