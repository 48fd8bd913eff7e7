#!/usr/bin/env bash
# The work of action.yml: options from COMPILOT_* variables, results as files and as outputs of the step.
# The exit code is that of 'compilot check': 0 pass or inconclusive, 1 slower or worse, 2 not measured.
set -uo pipefail

python=${COMPILOT_PYTHON:-python}
out=${RUNNER_TEMP:-$(mktemp -d)}/compilot-check
mkdir -p "$out"
options=(--budget "${COMPILOT_BUDGET:-3m}" --out "$out/run" --markdown "$out/comment.md" --junit "$out/junit.xml"
  --benchmark-json "$out/benchmark.json")
if [ "${COMPILOT_SARIF:-}" = true ]; then # the doctor looks at the code then, which takes a while
  options+=(--sarif "$out/findings.sarif")
fi

if [ -n "${COMPILOT_BASELINE:-}" ]; then
  options+=(--baseline "$COMPILOT_BASELINE")
elif [ -n "${COMPILOT_BASE_REF:-}" ]; then
  # a shallow checkout has the head only: one more commit is enough
  git cat-file -e "$COMPILOT_BASE_REF^{commit}" 2>/dev/null || git fetch --no-tags --depth=1 origin "$COMPILOT_BASE_REF"
  options+=(--base-ref "$COMPILOT_BASE_REF")
else
  echo "::error title=compilot::there is nothing to compare with; set base-ref or baseline" >&2
  exit 2
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
