#!/usr/bin/env bash
# model_fixtures.sh: makes the Qwen2 fixtures anew (a step of `make oracle`).
set -euo pipefail
cd "$(dirname "$0")/../.."
"$(tests/oracle/model_venv.sh)" tests/oracle/qwen2_oracle.py tests/fixtures
chmod 644 tests/fixtures/tiny-*/*
