locals {
  # The time-out is below the subscriptions' acknowledgement deadline (600 s): a delivery that is still being handled is
  # not sent again. `instances` bounds what a flood of messages can cost.
  services = {
    start-training    = { timeout = 540, concurrency = 4, instances = 10 }
    record-completion = { timeout = 540, concurrency = 4, instances = 10 }
    sweep             = { timeout = 540, concurrency = 1, instances = 1 }
    dashboard         = { timeout = 60, concurrency = 8, instances = 2 }
  }
  # Cloud Functions gives each service this URL as a custom audience, so tokens for it are taken; known before the first apply.
  urls = { for name, _ in local.services : name => "https://${var.region}-${var.project}.cloudfunctions.net/kickoff-${name}" }

  source_files = [for file in fileset(local.functions, "**") : file if !can(regex("__pycache__|\\.pyc$", file))]
  source_hash = substr(sha256(join("\n", [
    for file in local.source_files : "${file} ${filesha256("${local.functions}/${file}")}"
  ])), 0, 16)
  source_object = "functions/${local.source_hash}.zip"

  environment = merge({
    KICKOFF_PROJECT         = var.project
    KICKOFF_REGION          = var.region
    KICKOFF_LEDGER          = "firestore://${var.project}/kickoff"
    KICKOFF_STAGING         = "gs://${var.project}-staging/kickoff"
    KICKOFF_TRAINER_IMAGE   = local.trainer_image
    KICKOFF_EVENTS_TOPIC    = "projects/${var.project}/topics/training-events"
    KICKOFF_FINISHED_TOPIC  = "projects/${var.project}/topics/run-finished"
    KICKOFF_SERVICE_ACCOUNT = local.email.run
    KICKOFF_DASHBOARD_URL   = local.urls.dashboard
  }, nonsensitive(var.webhook == "") ? {} : { KICKOFF_WEBHOOK = var.webhook }, var.page_actions ? { KICKOFF_PAGE_ACTIONS = "allow" } : {})
}

# The source's own hash names its archive: a changed source is a new object, and only then are the functions built anew.
resource "terraform_data" "functions_source" {
  triggers_replace = [local.source_object, google_storage_bucket.staging.name]
  provisioner "local-exec" {
    command     = "python3 deploy/gcp/pack.py \"$archive\" && gcloud storage cp \"$archive\" \"$target\" && rm \"$archive\""
    working_dir = local.checkout
    environment = {
      archive = "kickoff-${local.source_hash}.zip"
      target  = "gs://${google_storage_bucket.staging.name}/${local.source_object}"
    }
  }
}

resource "google_cloudfunctions2_function" "this" {
  for_each = local.services
  name     = "kickoff-${each.key}"
  location = var.region
  labels   = local.labels
  build_config {
    runtime           = "python312"
    entry_point       = replace(each.key, "-", "_")
    service_account   = "projects/${var.project}/serviceAccounts/${local.email.build}"
    docker_repository = local.repository
    source {
      storage_source {
        bucket = google_storage_bucket.staging.name
        object = local.source_object
      }
    }
  }
  service_config {
    service_account_email            = local.email[each.key]
    available_cpu                    = "1"
    available_memory                 = "512Mi"
    timeout_seconds                  = each.value.timeout
    max_instance_request_concurrency = each.value.concurrency
    max_instance_count               = each.value.instances
    ingress_settings                 = "ALLOW_ALL" # IAM is the gate: Pub/Sub and Scheduler push from outside a VPC
    environment_variables            = local.environment
  }
  depends_on = [
    terraform_data.functions_source,
    google_service_account.this,
    google_project_iam_member.this,
    google_storage_bucket_iam_member.this,
    google_artifact_registry_repository_iam_member.this,
    google_firestore_database.kickoff,
  ]
}
