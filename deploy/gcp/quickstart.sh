#!/usr/bin/env bash
# quickstart.sh PROJECT REGION: Kickoff on Google Cloud, with gcloud alone.
#
# Run it again at any time: what is there stays, what changed (functions, image, recipes) is brought up to date.
# It makes the same things under the same names as the Terraform in this folder, less alerts and budget; docs/security.md
# says who may do what and why. Needs gcloud, Python 3.11 with functions/requirements.txt, Linux or Cloud Shell.
set -euo pipefail
project=${1:?usage: quickstart.sh PROJECT REGION}
region=${2:?usage: quickstart.sh PROJECT REGION}
cd "$(dirname "$0")/../.."
export CLOUDSDK_CORE_PROJECT=$project CLOUDSDK_CORE_DISABLE_PROMPTS=1 CLOUDSDK_CORE_DEFAULT_FORMAT=none
[[ -n ${PYTHON:-} ]] || PYTHON=$([[ -x .venv/bin/python ]] && echo .venv/bin/python || echo python3)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf '\n== %s\n' "$*"; }
exists() { "$@" >/dev/null 2>&1; }
url() { echo "https://$region-$project.cloudfunctions.net/kickoff-$1"; }
account() { echo "kickoff-$1@$project.iam.gserviceaccount.com"; }

# grant MEMBER ROLE COMMAND...: a new account takes seconds to be known everywhere, so try again.
grant() {
  local member=$1 role=$2 try
  shift 2
  for try in 1 2 3 4 5; do
    gcloud "$@" --member="$member" --role="$role" >/dev/null 2>"$work/error" && return
    sleep $((try * ${KICKOFF_RETRY_SECONDS:-5}))
  done
  cat "$work/error" >&2
  return 1
}
on_project() { grant "serviceAccount:$(account "$1")" "$2" projects add-iam-policy-binding "$project" "${@:3}"; }
on_bucket() { grant "serviceAccount:$(account "$1")" "$2" storage buckets add-iam-policy-binding "gs://$project-$3"; }
on_topic() { grant "serviceAccount:$1" roles/pubsub.publisher pubsub topics add-iam-policy-binding "$2"; }
on_account() { grant "serviceAccount:$1" "$2" iam service-accounts add-iam-policy-binding "$(account "$3")"; }
may_call() {
  grant "serviceAccount:$(account "$1")" roles/run.invoker run services add-iam-policy-binding "kickoff-$2" \
    --region="$region"
}

say "Recipes"
schedules=$("$PYTHON" deploy/gcp/declared.py schedules)

say "APIs"
gcloud services enable aiplatform.googleapis.com artifactregistry.googleapis.com cloudbuild.googleapis.com \
  cloudfunctions.googleapis.com cloudresourcemanager.googleapis.com cloudscheduler.googleapis.com \
  firestore.googleapis.com iam.googleapis.com \
  logging.googleapis.com monitoring.googleapis.com pubsub.googleapis.com run.googleapis.com storage.googleapis.com
number=$(gcloud projects describe "$project" --format='value(projectNumber)')

say "Service accounts"
existing=$(gcloud iam service-accounts list --format='value(email)')
for name in start-training record-completion sweep dashboard run push scheduler build; do
  grep -qxF "$(account "$name")" <<<"$existing" || gcloud iam service-accounts create "kickoff-$name"
done

say "Buckets"
# bucket NAME SOFT_DELETE LIFECYCLE
bucket() {
  exists gcloud storage buckets describe "gs://$project-$1" ||
    gcloud storage buckets create "gs://$project-$1" --location="$region" --uniform-bucket-level-access \
      --public-access-prevention --soft-delete-duration="$2" --lifecycle-file="deploy/gcp/$3.json"
}
bucket data 7d lifecycle
bucket models 7d lifecycle
bucket staging 0s lifecycle-staging
on_bucket start-training roles/storage.objectViewer data
on_bucket sweep roles/storage.objectViewer data
on_bucket run roles/storage.objectViewer data
on_bucket start-training roles/storage.objectViewer models
on_bucket record-completion roles/storage.objectViewer models
on_bucket sweep roles/storage.objectViewer models
on_bucket run roles/storage.objectUser models
on_bucket start-training roles/storage.objectUser staging
on_bucket sweep roles/storage.objectUser staging
on_bucket run roles/storage.objectViewer staging
on_bucket build roles/storage.objectViewer staging

say "Topics"
pushed=(dataset-uploads training-requests training-events job-logs)
existing=$(gcloud pubsub topics list --format='value(name.basename())')
subscribed=("${pushed[@]}" run-finished)
for topic in "${subscribed[@]}" "${subscribed[@]/%/-dead-letter}"; do
  grep -qxF "$topic" <<<"$existing" || gcloud pubsub topics create "$topic" --message-retention-duration=7d
done
on_topic "$(gcloud storage service-agent)" dataset-uploads
on_topic "$(account run)" training-events
on_topic "$(account record-completion)" run-finished
on_topic "$(account sweep)" run-finished
gcloud storage buckets notifications list "gs://$project-data" --format='value[]("Notification Configuration".topic)' |
  grep -q '/dataset-uploads$' ||
  gcloud storage buckets notifications create "gs://$project-data" --topic=dataset-uploads \
    --event-types=OBJECT_FINALIZE --payload-format=json --skip-topic-setup

say "Lines of the training service"
exists gcloud logging sinks describe kickoff-job-logs ||
  gcloud logging sinks create kickoff-job-logs "pubsub.googleapis.com/projects/$project/topics/job-logs" \
    --log-filter='resource.type="ml_job" AND resource.labels.task_name="service"'
writer=$(gcloud logging sinks describe kickoff-job-logs --format='value(writerIdentity)')
on_topic "${writer#serviceAccount:}" job-logs

say "Run records"
exists gcloud firestore databases describe --database=kickoff ||
  gcloud firestore databases create --database=kickoff --location="$region" --type=firestore-native --enable-pitr
gcloud firestore indexes composite list --database=kickoff --format=json |
  "$PYTHON" deploy/gcp/declared.py indexes >"$work/indexes"
while IFS=$'\t' read -r group fields; do
  # shellcheck disable=SC2086  # one flag a field: field configs hold no spaces
  gcloud firestore indexes composite create --database=kickoff --collection-group="$group" --async $fields
done <"$work/indexes"
gcloud firestore indexes fields list --database=kickoff --format=json |
  "$PYTHON" deploy/gcp/declared.py fields >"$work/fields"
while IFS=$'\t' read -r group field; do
  gcloud firestore indexes fields update "$field" --database=kickoff --collection-group="$group" --async --disable-indexes
done <"$work/fields"
gcloud firestore fields ttls list --database=kickoff --format=json |
  "$PYTHON" deploy/gcp/declared.py ttls >"$work/ttls"
while IFS=$'\t' read -r group field; do
  gcloud firestore fields ttls update "$field" --database=kickoff --collection-group="$group" --enable-ttl --async
done <"$work/ttls"

say "What the functions may do"
# role NAME TITLE PERMISSIONS
role() {
  exists gcloud iam roles describe "$1" --project="$project" ||
    gcloud iam roles create "$1" --project="$project" --title="$2" --stage=GA --permissions="$3"
}
jobs=aiplatform.customJobs
role kickoffJobs "Kickoff: start, find and cancel jobs" "$jobs.cancel,$jobs.create,$jobs.get,$jobs.list"
role kickoffLogs "Kickoff: read the lines of jobs" logging.logEntries.list
ledger="title=kickoff-only,expression=resource.name == \"projects/$project/databases/kickoff\""
for name in start-training record-completion sweep; do
  on_project "$name" "projects/$project/roles/kickoffJobs" --condition=None
  on_project "$name" roles/datastore.user --condition="$ledger"
  on_account "$(account "$name")" roles/iam.serviceAccountUser run
done
on_project dashboard roles/datastore.viewer --condition="$ledger"
for name in record-completion sweep dashboard; do
  on_project "$name" "projects/$project/roles/kickoffLogs" --condition=None
done

say "Trainer image"
sources="resource.name.startsWith(\"projects/_/buckets/gcf-v2-sources-$number-$region\")"
on_project build roles/logging.logWriter --condition=None
on_project build roles/storage.objectViewer --condition="title=kickoff-only,expression=$sources"
deploy/gcp/registry.sh "$project" "$region"
grant "serviceAccount:$(account build)" roles/artifactregistry.writer artifacts repositories add-iam-policy-binding \
  kickoff --location="$region"
image=$(deploy/gcp/trainer_image.sh "$project" "$region")

say "Functions"
cat >"$work/environ.yaml" <<END
KICKOFF_PROJECT: "$project"
KICKOFF_REGION: "$region"
KICKOFF_LEDGER: "firestore://$project/kickoff"
KICKOFF_STAGING: "gs://$project-staging/kickoff"
KICKOFF_TRAINER_IMAGE: "$image"
KICKOFF_EVENTS_TOPIC: "projects/$project/topics/training-events"
KICKOFF_FINISHED_TOPIC: "projects/$project/topics/run-finished"
KICKOFF_SERVICE_ACCOUNT: "$(account run)"
KICKOFF_DASHBOARD_URL: "$(url dashboard)"
END
# deploy_function NAME TIMEOUT CONCURRENCY INSTANCES. The time-out is below the subscriptions' acknowledgement
# deadline (600 s): a delivery that is still being handled is not sent again.
deploy_function() {
  gcloud functions deploy "kickoff-$1" --gen2 --region="$region" --runtime=python312 --source=functions \
    --entry-point="${1//-/_}" --trigger-http --no-allow-unauthenticated --service-account="$(account "$1")" \
    --build-service-account="projects/$project/serviceAccounts/$(account build)" \
    --docker-repository="projects/$project/locations/$region/repositories/kickoff" \
    --env-vars-file="$work/environ.yaml" --update-labels=app=kickoff \
    --cpu=1 --memory=512Mi --timeout="$2s" --concurrency="$3" --max-instances="$4"
}
deploy_function start-training 540 4 10
deploy_function record-completion 540 4 10
deploy_function sweep 540 1 1
deploy_function dashboard 60 8 2
may_call push start-training
may_call push record-completion
may_call scheduler start-training
may_call scheduler sweep

say "Subscriptions"
agent=service-$number@gcp-sa-pubsub.iam.gserviceaccount.com
on_account "$agent" roles/iam.serviceAccountOpenIdTokenCreator push
existing=$(gcloud pubsub subscriptions list --format='value(name.basename())')
# subscribe TOPIC NAME [FLAGS]: what cannot be delivered ten times goes to TOPIC-dead-letter, where `kickoff replay` finds it.
subscribe() {
  grep -qxF "$1-dead-letter" <<<"$existing" || gcloud pubsub subscriptions create "$1-dead-letter" \
    --topic="$1-dead-letter" --ack-deadline=600 --message-retention-duration=31d --expiration-period=never
  grep -qxF "$2" <<<"$existing" || gcloud pubsub subscriptions create "$2" --topic="$1" \
    --ack-deadline=600 --message-retention-duration=7d --expiration-period=never \
    --min-retry-delay=10s --max-retry-delay=600s --max-delivery-attempts=10 --dead-letter-topic="$1-dead-letter" "${@:3}"
  on_topic "$agent" "$1-dead-letter"
  grant "serviceAccount:$agent" roles/pubsub.subscriber pubsub subscriptions add-iam-policy-binding "$2"
}
# push TOPIC FUNCTION [FILTER]
push() {
  subscribe "$1" "$1-push" --push-endpoint="$(url "$2")" --push-auth-service-account="$(account push)" \
    --push-auth-token-audience="$(url "$2")" ${3:+--message-filter="$3"}
}
push dataset-uploads start-training 'attributes.eventType = "OBJECT_FINALIZE"'
push training-requests start-training
push training-events record-completion
push job-logs record-completion
subscribe run-finished run-finished-pull # for a consumer of one's own

say "Schedules"
existing=$(gcloud scheduler jobs list --location="$region" --format='value(name.basename(),state)')
# schedule NAME CRON ZONE FUNCTION RETRIES active|paused: start_training finds the recipe by the job's name.
schedule() {
  local verb=create headers=--headers state
  state=$(awk -v name="$1" '$1 == name {print $2}' <<<"$existing")
  [[ -z $state ]] || verb=update headers=--update-headers
  gcloud scheduler jobs "$verb" http "$1" --location="$region" --schedule="$2" --time-zone="$3" \
    --uri="$(url "$4")" --http-method=POST --message-body='{}' "$headers=Content-Type=application/json" \
    --oidc-service-account-email="$(account scheduler)" --oidc-token-audience="$(url "$4")" --attempt-deadline=540s \
    --max-retry-attempts="$5" --min-backoff=10s --max-backoff=300s
  if [[ $6 == paused && $state != PAUSED ]]; then gcloud scheduler jobs pause "$1" --location="$region"; fi
  if [[ $6 == active && $state == PAUSED ]]; then gcloud scheduler jobs resume "$1" --location="$region"; fi
}
schedule kickoff-sweep '* * * * *' Etc/UTC sweep 0 active
wanted=" kickoff-sweep "
while IFS=$'\t' read -r recipe cron zone state; do
  [[ -n $recipe ]] || continue
  schedule "kickoff-$recipe" "$cron" "$zone" start-training 5 "$state"
  wanted+=" kickoff-$recipe "
done <<<"$schedules"
while read -r name _; do # a recipe that is gone, or has no schedule any more
  [[ $name != kickoff-* || $wanted == *" $name "* ]] || gcloud scheduler jobs delete "$name" --location="$region"
done <<<"$existing"

say "Done"
echo "Upload a dataset:  gcloud storage cp -r FOLDER gs://$project-data/datasets/NAME/"
echo "Ask for a run:     gcloud pubsub topics publish training-requests --message='{\"recipe\": \"digits\"}'"
echo "Look at the runs:  gcloud run services proxy kickoff-dashboard --region=$region"
