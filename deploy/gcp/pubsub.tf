locals {
  # Topic: the function that its push subscription calls, and which messages it takes.
  pushed = {
    dataset-uploads   = { function = "start-training", filter = "attributes.eventType = \"OBJECT_FINALIZE\"" }
    training-requests = { function = "start-training", filter = "" }
    training-events   = { function = "record-completion", filter = "" }
    job-logs          = { function = "record-completion", filter = "" }
  }
  # Topic: its subscription, which gives up on a message after ten tries.
  subscribed   = merge({ for topic, _ in local.pushed : topic => "${topic}-push" }, { run-finished = "run-finished-pull" })
  dead_letters = { for topic, _ in local.subscribed : topic => "${topic}-dead-letter" }
}

resource "google_pubsub_topic" "this" {
  for_each                   = toset(concat(keys(local.dead_letters), values(local.dead_letters)))
  name                       = each.key
  labels                     = local.labels
  message_retention_duration = "604800s"
  depends_on                 = [google_project_service.this]
}

resource "google_pubsub_subscription" "push" {
  for_each                   = local.pushed
  name                       = "${each.key}-push"
  topic                      = google_pubsub_topic.this[each.key].name
  filter                     = each.value.filter
  labels                     = local.labels
  ack_deadline_seconds       = 600
  message_retention_duration = "604800s"
  expiration_policy {
    ttl = "" # never, however quiet it is
  }
  push_config {
    push_endpoint = local.urls[each.value.function]
    oidc_token {
      service_account_email = local.email.push
      audience              = local.urls[each.value.function]
    }
  }
  retry_policy {
    minimum_backoff = "10s"
    maximum_backoff = "600s"
  }
  dead_letter_policy {
    dead_letter_topic     = "projects/${var.project}/topics/${google_pubsub_topic.this[local.dead_letters[each.key]].name}"
    max_delivery_attempts = 10
  }
  depends_on = [google_cloudfunctions2_function.this]
}

# The ends of runs, for a consumer of one's own: what nobody has read yet waits for seven days.
resource "google_pubsub_subscription" "finished" {
  name                       = local.subscribed["run-finished"]
  topic                      = google_pubsub_topic.this["run-finished"].name
  labels                     = local.labels
  ack_deadline_seconds       = 600
  message_retention_duration = "604800s"
  expiration_policy {
    ttl = ""
  }
  retry_policy {
    minimum_backoff = "10s"
    maximum_backoff = "600s"
  }
  dead_letter_policy {
    dead_letter_topic     = "projects/${var.project}/topics/${google_pubsub_topic.this[local.dead_letters["run-finished"]].name}"
    max_delivery_attempts = 10
  }
}

locals {
  # Name: the same, once it is there.
  subscriptions = {
    for made in concat(values(google_pubsub_subscription.push), [google_pubsub_subscription.finished]) : made.name => made.name
  }
}

# Without a subscription, what a dead-letter topic gets is lost. `kickoff replay` reads these.
resource "google_pubsub_subscription" "dead_letter" {
  for_each                   = local.dead_letters
  name                       = each.value
  topic                      = google_pubsub_topic.this[each.value].name
  labels                     = local.labels
  ack_deadline_seconds       = 600
  message_retention_duration = "2678400s"
  expiration_policy {
    ttl = ""
  }
}

resource "google_logging_project_sink" "job_logs" {
  name                   = "kickoff-job-logs"
  destination            = "pubsub.googleapis.com/projects/${var.project}/topics/${google_pubsub_topic.this["job-logs"].name}"
  filter                 = "resource.type=\"ml_job\" AND resource.labels.task_name=\"service\""
  unique_writer_identity = true
}
