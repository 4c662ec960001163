#!/usr/bin/env bash
# registry.sh PROJECT REGION: the Docker repository `kickoff` in Artifact Registry, with its clean-up policy. Idempotent.
set -euo pipefail
project=${1:?usage: registry.sh PROJECT REGION}
region=${2:?usage: registry.sh PROJECT REGION}
here=$(dirname "$0")
export CLOUDSDK_CORE_PROJECT=$project CLOUDSDK_CORE_DISABLE_PROMPTS=1 CLOUDSDK_CORE_DEFAULT_FORMAT=none

gcloud artifacts repositories describe kickoff --location="$region" >/dev/null 2>&1 ||
  gcloud artifacts repositories create kickoff --location="$region" --repository-format=docker --labels=app=kickoff \
    --description="Kickoff's trainer and functions"
gcloud artifacts repositories set-cleanup-policies kickoff --location="$region" --no-dry-run \
  --policy="$here/cleanup.json"
