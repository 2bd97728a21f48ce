#!/usr/bin/env bash
# scripts/lint.sh [--all]: checks the laws of the house that a search can check, and the format. With --all, clang-tidy
# reads every C++ source too (minutes); it needs a configured build/. Fails if anything is found, and names each place.
source "$(dirname "$0")/common.sh"
usage_if_asked "$@"

shopt -s lastpipe  # so that law, at the end of a pipe, can count
failures=0

files() {
  git ls-files --cached --others --exclude-standard -- "$@" | while IFS= read -r file; do
    [ -f "$file" ] && echo "$file"
  done
}

# law TEXT: fails with TEXT and what stands on standard input, unless that is nothing.
law() {
  local found
  found=$(cat)
  [ -n "$found" ] || return 0
  say "$1"
  sed 's/^/  /' <<<"$found" >&2
  failures=$((failures + 1))
}

# lines PATTERN PATH...: FILE:LINE:TEXT of the matches in the files of PATHs.
lines() {
  local pattern=$1
  shift
  files "$@" | xargs --no-run-if-empty grep --with-filename --line-number --perl-regexp "$pattern" || true
}

# The folders that a folder may include, from CMakeLists.txt; then each include of another one.
foreign_includes() {
  awk -F '[( )]' '/^house_folder\(/ { uses[$2] = $0; order[++count] = $2 }
    END { for (i = 1; i <= count; ++i) print order[i], uses[order[i]] }' CMakeLists.txt |
  while read -r folder uses; do
    lines '^#include "[a-z]+/' "userspace/$folder/*" | while IFS= read -r line; do
      included=$(sed 's/.*#include "\([a-z]*\)\/.*/\1/' <<<"$line")
      case "$included" in "$folder"|memtrace) continue ;; esac
      grep --quiet --word-regexp -- "$included" <<<"${uses#*USES}" || echo "$line"
    done
  done
}

# A literal that goes on in the next line: such a message cannot be searched for.
split_messages() {
  files 'userspace/*.cpp' 'userspace/*.hpp' | xargs --no-run-if-empty awk '
    FNR == 1 { previous = "" }
    previous ~ /"$/ && previous !~ /R"[a-z]*\($/ && $0 ~ /^ *"/ { print FILENAME ":" FNR ":" $0 }
    { previous = $0 }'
}

long_files() {
  files '*.c' '*.h' '*.cpp' '*.hpp' '*.sh' '*.cmake' '*.py' '*CMakeLists.txt' | xargs wc -l |
    awk '$2 != "total" && $1 > 400 { print $2 ": " $1 " lines" }'
}

headers_without_comment() {
  files '*.h' '*.hpp' | while IFS= read -r file; do
    head -n 1 "$file" | grep --quiet --extended-regexp '^(//|/\*)' || echo "$file"
  done
}

check_laws() {
  lines '#include <CLI/' '*.cpp' '*.hpp' ':!userspace/cli' |
    law 'only userspace/cli knows CLI11'
  lines '#include (<bpf/(libbpf|bpf)\.h>|".*\.skel\.h")' '*.cpp' '*.hpp' ':!userspace/kernel' ':!tests/bpf' ':!tests/bench' |
    law 'only userspace/kernel and its tests know libbpf'
  lines '^SEC\("(?!license)' '*.c' '*.h' ':!bpf/memtrace.bpf.c' ':!tests/bench' ':!tests/bpf' |
    law 'only bpf/memtrace.bpf.c holds BPF programs'
  lines '\b(std::cout|std::cerr|f?printf|f?puts|fmt::print)\b *[(<]' 'userspace/*' ':!userspace/formats' ':!userspace/main.cpp' |
    law 'only userspace/formats, log and main print'
  lines '^using namespace' '*.hpp' | law 'a header opens no namespace'
  lines '\b(TODO|FIXME|XXX|HACK)\b' '*.c' '*.h' '*.cpp' '*.hpp' '*.sh' '*.cmake' ':!scripts/lint.sh' | law 'finish it or file it'
  foreign_includes | law 'a folder includes only what CMakeLists.txt lets it use'
  split_messages | law 'a message is one whole string'
  long_files | law 'a file has at most 400 lines'
  headers_without_comment | law 'a header says first what lives in it'
  files '*.h' '*.hpp' | xargs --no-run-if-empty grep --files-without-match '^#pragma once' | law 'a header has #pragma once'
}

# The laws need names without blanks.
files | grep ' ' | law 'no blanks in names of files' || true
check_laws
scripts/format.sh --check || { say 'not in the format of the house; make format mends it'; failures=$((failures + 1)); }
if [ "${1:-}" = --all ]; then
  scripts/tidy.sh || failures=$((failures + 1))
fi
[ "$failures" = 0 ]
