# What needs a person: each alert's text says what to do. The functions' structured log lines (kickoff/log_lines.py) are
# the source of what no Google metric knows.

resource "google_logging_metric" "runs_ended" {
  name        = "kickoff-runs-ended"
  description = "Runs that ended, by state."
  filter      = "resource.type=\"cloud_run_revision\" AND jsonPayload.kickoff=\"run-ended\""
  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    labels {
      key        = "state"
      value_type = "STRING"
    }
    labels {
      key        = "recipe"
      value_type = "STRING"
    }
  }
  label_extractors = {
    state  = "EXTRACT(jsonPayload.state)"
    recipe = "EXTRACT(jsonPayload.recipe)"
  }
  depends_on = [google_project_service.this]
}

resource "google_logging_metric" "oldest_queued" {
  name            = "kickoff-oldest-queued-seconds"
  description     = "How long the oldest queued run has waited, at each pass of the sweep."
  filter          = "resource.type=\"cloud_run_revision\" AND jsonPayload.kickoff=\"sweep\""
  value_extractor = "EXTRACT(jsonPayload.oldest_queued_seconds)"
  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "DISTRIBUTION"
    unit        = "s"
  }
  depends_on = [google_project_service.this]
}

# Cloud Monitoring refuses an alert on a metric that it does not know yet, and learns of a new one after some seconds.
resource "terraform_data" "metrics_known" {
  triggers_replace = [google_logging_metric.runs_ended.id, google_logging_metric.oldest_queued.id]
  provisioner "local-exec" {
    command = "sleep 30"
  }
}

locals {
  channels = google_monitoring_notification_channel.email[*].id
  ended    = "metric.type=\"logging.googleapis.com/user/${google_logging_metric.runs_ended.name}\" resource.type=\"cloud_run_revision\""
  queued   = "metric.type=\"logging.googleapis.com/user/${google_logging_metric.oldest_queued.name}\" resource.type=\"cloud_run_revision\""
  backlog  = "resource.type=\"pubsub_subscription\" metric.type=\"pubsub.googleapis.com/subscription"
  sweeps   = "resource.type=\"cloud_run_revision\" resource.labels.service_name=\"kickoff-sweep\" metric.type=\"run.googleapis.com/request_count\" metric.labels.response_code_class=\"2xx\""

  # `above`: alert where the value stays above it for `duration`. aligner and reducer as Cloud Monitoring names them.
  alerts = {
    dead-letters = {
      title    = "Kickoff: messages that could not be delivered"
      filter   = "${local.backlog}/num_undelivered_messages\" resource.labels.subscription_id=monitoring.regex.full_match(\".*-dead-letter\")"
      above    = 0
      duration = "0s"
      aligner  = "ALIGN_MAX"
      advice   = "Ten deliveries failed. See why in the function's log, mend it, then `kickoff replay` sends them again."
    }
    backlog = {
      title    = "Kickoff: deliveries are late"
      filter   = "${local.backlog}/oldest_unacked_message_age\" resource.labels.subscription_id=monitoring.regex.full_match(\".*-push\")"
      above    = 900
      duration = "300s"
      aligner  = "ALIGN_MAX"
      advice   = "A function refuses or fails what is pushed to it. See its log; `kickoff doctor` looks at the rest."
    }
    failed-runs = {
      title    = "Kickoff: a run failed"
      filter   = "${local.ended} metric.labels.state=monitoring.regex.full_match(\"FAILED|EXPIRED\")"
      above    = 0
      duration = "0s"
      aligner  = "ALIGN_DELTA"
      advice   = "`kickoff runs` lists it, `kickoff show RUN` has the error, `kickoff logs RUN` the last lines, `kickoff rerun RUN` starts it again."
    }
    oldest-queued = {
      title    = "Kickoff: a run has been queued for two hours"
      filter   = local.queued
      above    = 7200
      duration = "300s"
      aligner  = "ALIGN_PERCENTILE_99"
      advice   = "`kickoff explain RUN` says what it waits for: a slot (limits.max_active), quota, or a pause."
    }
  }
}

resource "google_monitoring_notification_channel" "email" {
  count        = var.alert_email == "" ? 0 : 1
  display_name = "Kickoff"
  type         = "email"
  labels       = { email_address = var.alert_email }
  depends_on   = [google_project_service.this]
}

resource "google_monitoring_alert_policy" "this" {
  for_each              = local.alerts
  display_name          = each.value.title
  combiner              = "OR"
  user_labels           = local.labels
  notification_channels = local.channels
  documentation {
    content = each.value.advice
  }
  conditions {
    display_name = each.value.title
    condition_threshold {
      filter          = each.value.filter
      comparison      = "COMPARISON_GT"
      threshold_value = each.value.above
      duration        = each.value.duration
      aggregations {
        alignment_period   = "300s"
        per_series_aligner = each.value.aligner
      }
    }
  }
  depends_on = [terraform_data.metrics_known]
}

resource "google_monitoring_alert_policy" "sweep" {
  display_name          = "Kickoff: the sweep is not running"
  combiner              = "OR"
  user_labels           = local.labels
  notification_channels = local.channels
  documentation {
    content = "No pass of the sweep has succeeded for 15 minutes: lost events stay lost. See the Scheduler job kickoff-sweep and the function's log."
  }
  conditions {
    display_name = "no successful call of kickoff-sweep"
    condition_absent {
      filter   = local.sweeps
      duration = "900s"
      aggregations {
        alignment_period     = "300s"
        per_series_aligner   = "ALIGN_DELTA"
        cross_series_reducer = "REDUCE_SUM"
      }
    }
  }
  depends_on = [google_cloudfunctions2_function.this]
}

resource "google_billing_budget" "this" {
  provider        = google.billing
  count           = var.budget == null ? 0 : 1
  billing_account = var.budget.billing_account
  display_name    = "Kickoff in ${var.project}"
  budget_filter {
    projects = ["projects/${local.number}"]
  }
  amount {
    specified_amount {
      units = tostring(floor(var.budget.amount))
    }
  }
  dynamic "threshold_rules" {
    for_each = [0.5, 0.9, 1.0]
    content {
      threshold_percent = threshold_rules.value
    }
  }
  threshold_rules {
    threshold_percent = 1.0
    spend_basis       = "FORECASTED_SPEND"
  }
  all_updates_rule {
    monitoring_notification_channels = local.channels
    disable_default_iam_recipients   = false
  }
}

locals {
  tiles = [
    { title = "Runs ended, by state", filter = local.ended, aligner = "ALIGN_DELTA", by = ["metric.label.state"] },
    { title = "Oldest queued run (s)", filter = local.queued, aligner = "ALIGN_PERCENTILE_99", by = [] },
    { title = "Undelivered messages", filter = "${local.backlog}/num_undelivered_messages\"", aligner = "ALIGN_MAX", by = ["resource.label.subscription_id"] },
    { title = "Calls of the functions", filter = "resource.type=\"cloud_run_revision\" resource.labels.service_name=monitoring.regex.full_match(\"kickoff-.*\") metric.type=\"run.googleapis.com/request_count\"", aligner = "ALIGN_DELTA", by = ["resource.label.service_name", "metric.label.response_code_class"] },
  ]
}

resource "google_monitoring_dashboard" "kickoff" {
  dashboard_json = jsonencode({
    displayName = "Kickoff"
    gridLayout = {
      columns = "2"
      widgets = [for tile in local.tiles : {
        title = tile.title
        xyChart = {
          dataSets = [{
            plotType = "LINE"
            timeSeriesQuery = {
              timeSeriesFilter = {
                filter = tile.filter
                aggregation = {
                  alignmentPeriod    = "300s"
                  perSeriesAligner   = tile.aligner
                  crossSeriesReducer = tile.aligner == "ALIGN_DELTA" ? "REDUCE_SUM" : "REDUCE_MAX"
                  groupByFields      = tile.by
                }
              }
            }
          }]
        }
      }]
    }
  })
  depends_on = [google_project_service.this]
}
