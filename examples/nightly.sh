#!/bin/sh
# Score each file of a folder that has no finished output yet, each into its own output folder:
#   nightly.sh INBOX SCORED [OPTION OF capsar score]...
# The exit code is the highest exit code of capsar score.
set -u
inbox=$1 scored=$2
shift 2
worst=0
for file in "$inbox"/*; do
  output=$scored/$(basename "$file")
  if [ -f "$file" ] && [ ! -e "$output/_SUCCESS" ]; then
    capsar score "$file" "$output" "$@"
    code=$?
    if [ "$code" -gt "$worst" ]; then worst=$code; fi
  fi
done
exit "$worst"
