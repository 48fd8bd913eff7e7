#!/usr/bin/env bash
# The work of action.yml: options from COMPILOT_* variables, results as files and as outputs of the step.
# The exit code is that of 'compilot check': 0 pass or inconclusive, 1 slower or worse, 2 not measured.
set -uo pipefail

fail() { # there is nothing to compare with, and why
  echo "::error title=compilot::$1" >&2
  exit 2
}

# The parents of the commit that is checked out: a shallow checkout has no other commit, but knows their names.
parents() { git cat-file -p HEAD 2>/dev/null | sed -n -e '/^$/q' -e 's/^parent //p'; }

# The base of the event that started the workflow: the commit that the pull request is merged into, or the one before
# the push. A checkout of a pull request is its merge; the base that the event names may be older than the merge's own.
event_base() {
  if [ "${GITHUB_EVENT_NAME:-}" = pull_request ] && [ "$(git rev-parse HEAD 2>/dev/null)" = "${GITHUB_SHA:-}" ] &&
    [ "$(parents | wc -l)" -gt 1 ]; then
    parents | head -n 1
  else
    echo "${COMPILOT_EVENT_BASE:-}"
  fi
}

# A branch, a tag or a commit as git knows it here; where this checkout does not have it, the commit that is fetched.
known() {
  if git rev-parse --verify --quiet --end-of-options "$1^{commit}" >/dev/null; then
    echo "$1"
    return
  fi
  local depth=()
  if [ "$(git rev-parse --is-shallow-repository)" = true ]; then
    depth=(--depth=1) # one more commit is enough
  fi
  git fetch --quiet --no-tags ${depth[@]+"${depth[@]}"} origin "${1#origin/}" >&2 &&
    git rev-parse --verify --quiet 'FETCH_HEAD^{commit}'
}

python=${COMPILOT_PYTHON:-python}
out=$(mktemp -d "${RUNNER_TEMP:-${TMPDIR:-/tmp}}/compilot-check-XXXXXX") || exit 2 # a job may check several targets
options=(--budget "${COMPILOT_BUDGET:-3m}" --out "$out/run" --markdown "$out/comment.md" --junit "$out/junit.xml"
  --benchmark-json "$out/benchmark.json")
if [ "${COMPILOT_SARIF:-}" = true ]; then # the doctor looks at the code then, which takes a while
  options+=(--sarif "$out/findings.sarif")
fi

if [ -n "${COMPILOT_BASELINE:-}" ]; then
  options+=(--baseline "$COMPILOT_BASELINE")
else
  ref=${COMPILOT_BASE_REF:-$(event_base)}
  case $ref in
    "") fail "there is nothing to compare with; set base-ref or baseline" ;;
    -*) fail "'$ref' is no git ref; set base-ref to a branch, a tag or a commit" ;;
    *[!0]*) ;;
    *) fail "this push made the branch, so there is no commit before it; set base-ref, for example to main" ;;
  esac
  base=$(known "$ref") || fail "git cannot fetch '$ref', see above; set base-ref, or check out with fetch-depth: 0"
  options+=(--base-ref "$base")
fi
if [ -n "${COMPILOT_PLAN:-}" ]; then
  options+=(--plan "$COMPILOT_PLAN")
elif [ -n "${COMPILOT_ARMS:-}" ]; then
  options+=(--arms "$COMPILOT_ARMS")
fi

# One value per line: a line is one word, whatever is in it.
each() {
  while IFS= read -r line; do
    if [ -n "$line" ]; then
      options+=(${2:+"$2"} "$line")
    fi
  done <<<"$1"
}
each "${COMPILOT_LINK:-}" --link
each "${COMPILOT_ALLOW:-}" --allow
each "${COMPILOT_ARGS:-}" ""

"$python" -m compilot check "$COMPILOT_TARGET" "${options[@]}"
code=$?

if [ -n "${GITHUB_OUTPUT:-}" ]; then
  if [ -f "$out/run/check.json" ]; then
    verdict=$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["verdict"])' "$out/run/check.json")
  else
    verdict=not-measured
  fi
  {
    echo "verdict=$verdict"
    for made in markdown=comment.md junit=junit.xml sarif=findings.sarif report=run/check.json; do
      if [ -f "$out/${made#*=}" ]; then # an error before the measurement leaves no files
        echo "${made%%=*}=$out/${made#*=}"
      fi
    done
  } >>"$GITHUB_OUTPUT"
fi
exit "$code"
