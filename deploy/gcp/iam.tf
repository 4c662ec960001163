# Everybody and everything that Kickoff lets do something, in one table: the resources below, docs/security.md and the
# tests are made from it. `on` is empty for the project.

locals {
  accounts = {
    start-training    = "Kickoff: reads events, starts jobs"
    record-completion = "Kickoff: records how jobs end"
    sweep             = "Kickoff: finds what no event told"
    dashboard         = "Kickoff: shows the run records"
    run               = "Kickoff: training jobs run as this"
    push              = "Kickoff: signs Pub/Sub's pushes"
    scheduler         = "Kickoff: signs Cloud Scheduler's calls"
    build             = "Kickoff: builds the functions and the trainer image"
  }
  email = { for name, _ in local.accounts : name => "kickoff-${name}@${var.project}.iam.gserviceaccount.com" }
  members = merge({ for name, email in local.email : name => "serviceAccount:${email}" }, {
    "Pub/Sub agent"       = "serviceAccount:service-${local.number}@gcp-sa-pubsub.iam.gserviceaccount.com"
    "Cloud Storage agent" = "serviceAccount:service-${local.number}@gs-project-accounts.iam.gserviceaccount.com"
    "Cloud Logging agent" = "serviceAccount:service-${local.number}@gcp-sa-logging.iam.gserviceaccount.com"
  })

  logs_role      = "projects/${var.project}/roles/kickoffLogs"
  jobs_role      = "projects/${var.project}/roles/kickoffJobs"
  only_ledger    = "resource.name == \"projects/${var.project}/databases/kickoff\""
  only_functions = "resource.name.startsWith(\"projects/_/buckets/gcf-v2-sources-${local.number}-${var.region}\")"

  grants = concat(
    [
      { kind = "project", on = "", who = "start-training", role = local.jobs_role, condition = "", why = "creates the job of an accepted run, finds and cancels one that was created twice" },
      { kind = "project", on = "", who = "record-completion", role = local.jobs_role, condition = "", why = "asks how a job stands, and starts the next run when a slot is freed" },
      { kind = "project", on = "", who = "sweep", role = local.jobs_role, condition = "", why = "finds jobs whose answer or end was lost, and starts runs that are due" },
      { kind = "project", on = "", who = "start-training", role = "roles/datastore.user", condition = local.only_ledger, why = "writes run records" },
      { kind = "project", on = "", who = "record-completion", role = "roles/datastore.user", condition = local.only_ledger, why = "writes run records" },
      { kind = "project", on = "", who = "sweep", role = "roles/datastore.user", condition = local.only_ledger, why = "writes run records" },
      { kind = "project", on = "", who = "record-completion", role = local.logs_role, condition = "", why = "puts the last lines of a failed replica into the record" },
      { kind = "project", on = "", who = "sweep", role = local.logs_role, condition = "", why = "puts the last lines of a failed replica into the record" },
      { kind = "project", on = "", who = "dashboard", role = local.logs_role, condition = "", why = "shows the last lines of each replica" },
      { kind = "project", on = "", who = "dashboard", role = "roles/datastore.viewer", condition = local.only_ledger, why = "reads run records" },
      { kind = "project", on = "", who = "build", role = "roles/logging.logWriter", condition = "", why = "writes build logs" },
      { kind = "project", on = "", who = "build", role = "roles/storage.objectViewer", condition = local.only_functions, why = "reads the functions' source where Cloud Functions keeps it" },

      { kind = "account", on = "run", who = "start-training", role = "roles/iam.serviceAccountUser", condition = "", why = "jobs run as kickoff-run; actAs on no other account" },
      { kind = "account", on = "run", who = "record-completion", role = "roles/iam.serviceAccountUser", condition = "", why = "jobs run as kickoff-run; actAs on no other account" },
      { kind = "account", on = "run", who = "sweep", role = "roles/iam.serviceAccountUser", condition = "", why = "jobs run as kickoff-run; actAs on no other account" },
      { kind = "account", on = "push", who = "Pub/Sub agent", role = "roles/iam.serviceAccountOpenIdTokenCreator", condition = "", why = "signs the pushes" },

      { kind = "bucket", on = "data", who = "start-training", role = "roles/storage.objectViewer", condition = "", why = "lists a dataset and reads its marker or manifest" },
      { kind = "bucket", on = "data", who = "sweep", role = "roles/storage.objectViewer", condition = "", why = "lists datasets that are due, and those whose event was lost" },
      { kind = "bucket", on = "data", who = "run", role = "roles/storage.objectViewer", condition = "", why = "trains on it" },
      { kind = "bucket", on = "models", who = "start-training", role = "roles/storage.objectViewer", condition = "", why = "reads which of two jobs won a run" },
      { kind = "bucket", on = "models", who = "record-completion", role = "roles/storage.objectViewer", condition = "", why = "looks whether the model is there; reads which of two jobs won a run" },
      { kind = "bucket", on = "models", who = "sweep", role = "roles/storage.objectViewer", condition = "", why = "looks whether the model is there; reads which of two jobs won a run" },
      { kind = "bucket", on = "models", who = "run", role = "roles/storage.objectUser", condition = "", why = "writes checkpoints, logs and the model" },
      { kind = "bucket", on = "staging", who = "start-training", role = "roles/storage.objectUser", condition = "", why = "writes dataset snapshots" },
      { kind = "bucket", on = "staging", who = "sweep", role = "roles/storage.objectUser", condition = "", why = "writes dataset snapshots" },
      { kind = "bucket", on = "staging", who = "run", role = "roles/storage.objectViewer", condition = "", why = "reads the snapshot it trains on" },
      { kind = "bucket", on = "staging", who = "build", role = "roles/storage.objectViewer", condition = "", why = "reads the trainer's source" },

      { kind = "topic", on = "dataset-uploads", who = "Cloud Storage agent", role = "roles/pubsub.publisher", condition = "", why = "announces uploads to the data bucket" },
      { kind = "topic", on = "training-events", who = "run", role = "roles/pubsub.publisher", condition = "", why = "the trainer tells epochs and its end" },
      { kind = "topic", on = "job-logs", who = "Cloud Logging agent", role = "roles/pubsub.publisher", condition = "", why = "the sink of the training service's lines" },
      { kind = "topic", on = "run-finished", who = "record-completion", role = "roles/pubsub.publisher", condition = "", why = "announces the end of a run" },
      { kind = "topic", on = "run-finished", who = "sweep", role = "roles/pubsub.publisher", condition = "", why = "announces the end of a run that it found" },

      { kind = "function", on = "start-training", who = "push", role = "roles/run.invoker", condition = "", why = "delivers uploads and requests" },
      { kind = "function", on = "start-training", who = "scheduler", role = "roles/run.invoker", condition = "", why = "calls at the times of the recipes" },
      { kind = "function", on = "record-completion", who = "push", role = "roles/run.invoker", condition = "", why = "delivers hints about jobs" },
      { kind = "function", on = "sweep", who = "scheduler", role = "roles/run.invoker", condition = "", why = "calls it every minute" },

      { kind = "repository", on = "kickoff", who = "build", role = "roles/artifactregistry.writer", condition = "", why = "pushes the images it builds" },
    ],
    [for grant in [
      { kind = "project", on = "", role = "roles/datastore.user", condition = local.only_ledger, why = "writes a cancellation or a rerun (page_actions)" },
      { kind = "project", on = "", role = local.jobs_role, condition = "", why = "cancels a job, or starts that of a rerun (page_actions)" },
      { kind = "account", on = "run", role = "roles/iam.serviceAccountUser", condition = "", why = "jobs run as kickoff-run (page_actions)" },
      { kind = "bucket", on = "models", role = "roles/storage.objectViewer", condition = "", why = "reads which of two jobs won a run (page_actions)" },
    ] : merge(grant, { who = "dashboard" }) if var.page_actions],
    [for topic, dead in local.dead_letters : { kind = "topic", on = dead, who = "Pub/Sub agent", role = "roles/pubsub.publisher", condition = "", why = "moves what cannot be delivered to the dead letters" }],
    [for topic, dead in local.dead_letters : { kind = "subscription", on = local.subscribed[topic], who = "Pub/Sub agent", role = "roles/pubsub.subscriber", condition = "", why = "moves what cannot be delivered to the dead letters" }],
    [for member in var.request_publishers : { kind = "topic", on = "training-requests", who = member, role = "roles/pubsub.publisher", condition = "", why = "may ask for training, which costs money (request_publishers)" }],
    [for member in var.dashboard_users : { kind = "function", on = "dashboard", who = member, role = "roles/run.invoker", condition = "", why = "may open the dashboard (dashboard_users)" }],
  )
  granted = {
    for grant in local.grants : "${grant.on} ${grant.who} ${basename(grant.role)}" =>
    merge(grant, { member = lookup(local.members, grant.who, grant.who) })
  }
}

resource "google_service_account" "this" {
  for_each     = local.accounts
  account_id   = "kickoff-${each.key}"
  display_name = each.value
  depends_on   = [google_project_service.this]
}

# roles/aiplatform.user has some 300 permissions; these four are what is called.
resource "google_project_iam_custom_role" "jobs" {
  role_id = "kickoffJobs"
  title   = "Kickoff: start, find and cancel jobs"
  permissions = [
    "aiplatform.customJobs.cancel",
    "aiplatform.customJobs.create",
    "aiplatform.customJobs.get",
    "aiplatform.customJobs.list",
  ]
  depends_on = [google_project_service.this]
}

resource "google_project_iam_custom_role" "logs" {
  role_id     = "kickoffLogs"
  title       = "Kickoff: read the lines of jobs"
  permissions = ["logging.logEntries.list"]
  depends_on  = [google_project_service.this]
}

resource "google_project_iam_member" "this" {
  for_each = { for key, grant in local.granted : key => grant if grant.kind == "project" }
  project  = var.project
  role     = each.value.role
  member   = each.value.member
  dynamic "condition" {
    for_each = each.value.condition == "" ? [] : [each.value.condition]
    content {
      title      = "kickoff-only"
      expression = condition.value
    }
  }
  depends_on = [google_service_account.this, google_project_iam_custom_role.jobs, google_project_iam_custom_role.logs]
}

resource "google_service_account_iam_member" "this" {
  for_each           = { for key, grant in local.granted : key => grant if grant.kind == "account" }
  service_account_id = "projects/${var.project}/serviceAccounts/${local.email[each.value.on]}"
  role               = each.value.role
  member             = each.value.member
  depends_on         = [google_service_account.this, google_pubsub_topic.this]
}

resource "google_storage_bucket_iam_member" "this" {
  for_each   = { for key, grant in local.granted : key => grant if grant.kind == "bucket" }
  bucket     = { data = google_storage_bucket.data.name, models = google_storage_bucket.models.name, staging = google_storage_bucket.staging.name }[each.value.on]
  role       = each.value.role
  member     = each.value.member
  depends_on = [google_service_account.this]
}

resource "google_pubsub_topic_iam_member" "this" {
  for_each = { for key, grant in local.granted : key => grant if grant.kind == "topic" }
  topic    = google_pubsub_topic.this[each.value.on].name
  role     = each.value.role
  member   = each.value.member
  depends_on = [
    google_service_account.this,
    google_logging_project_sink.job_logs,
    data.google_storage_project_service_account.this,
  ]
}

resource "google_pubsub_subscription_iam_member" "this" {
  for_each     = { for key, grant in local.granted : key => grant if grant.kind == "subscription" }
  subscription = local.subscriptions[each.value.on]
  role         = each.value.role
  member       = each.value.member
}

resource "google_cloud_run_v2_service_iam_member" "this" {
  for_each   = { for key, grant in local.granted : key => grant if grant.kind == "function" }
  name       = google_cloudfunctions2_function.this[each.value.on].name
  location   = var.region
  role       = each.value.role
  member     = each.value.member
  depends_on = [google_service_account.this]
}

resource "google_artifact_registry_repository_iam_member" "this" {
  for_each   = { for key, grant in local.granted : key => grant if grant.kind == "repository" }
  repository = each.value.on
  location   = var.region
  role       = each.value.role
  member     = each.value.member
  depends_on = [google_service_account.this, terraform_data.registry]
}
