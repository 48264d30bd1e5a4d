#!/bin/sh
# Checks the texts of the project, or of the files and folders given: see scripts/prose.
cd "$(dirname "$0")/.." && exec "${GO:-go}" run ./scripts/prose "$@"
