#!/usr/bin/env bash
# trainer_image.sh PROJECT REGION [gpu|cpu] [cloud-build|docker]: the trainer's image in Artifact Registry, pinned by its digest.
#
# Builds the image unless one of the same sources is there already (registry.sh makes the repository), and prints
# REGION-docker.pkg.dev/PROJECT/kickoff/trainer@sha256:... and nothing else on stdout.
# gpu runs on machines without one too, and is 3 GB larger.
# Called by quickstart.sh and by Terraform (trainer.tf): the image must be there before the functions that name it.
set -euo pipefail
project=${1:?usage: trainer_image.sh PROJECT REGION [gpu|cpu] [cloud-build|docker]}
region=${2:?usage: trainer_image.sh PROJECT REGION [gpu|cpu] [cloud-build|docker]}
accelerator=${3:-gpu}
builder=${4:-cloud-build}
cd "$(dirname "$0")/../.."
export CLOUDSDK_CORE_PROJECT=$project CLOUDSDK_CORE_DISABLE_PROMPTS=1

sources=$(find Dockerfile trainer -type f -not -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)
image=$region-docker.pkg.dev/$project/kickoff/trainer
tag=$accelerator-${sources:0:16}

digest() { gcloud artifacts docker images describe "$image:$tag" --format='value(image_summary.digest)'; }

digest=$(digest 2>/dev/null) || {
  case $builder in
    cloud-build)
      gcloud builds submit . --region="$region" --config=deploy/gcp/cloudbuild.yaml --suppress-logs \
        --ignore-file=deploy/gcp/trainer.gcloudignore --substitutions="_IMAGE=$image:$tag,_ACCELERATOR=$accelerator" \
        --gcs-source-staging-dir="gs://$project-staging/builds" \
        --service-account="projects/$project/serviceAccounts/kickoff-build@$project.iam.gserviceaccount.com" >&2 ;;
    docker)
      gcloud auth configure-docker "$region-docker.pkg.dev" --quiet >&2
      docker build --platform linux/amd64 --build-arg "ACCELERATOR=$accelerator" --tag "$image:$tag" . >&2
      docker push "$image:$tag" >&2 ;;
    *) echo "the builder is '$builder'; it must be cloud-build or docker" >&2; exit 2 ;;
  esac
  digest=$(digest)
}
echo "$image@$digest"
