locals {
  recipes = { for file in fileset(local.functions, "recipes/*.yaml") : file => yamldecode(file("${local.functions}/${file}")) }
  schedules = {
    for recipe in values(local.recipes) : recipe.name => {
      cron     = recipe.when.schedule.cron
      timezone = try(recipe.when.schedule.timezone, "Etc/UTC")
      paused   = try(recipe.paused, false)
    } if can(recipe.when.schedule.cron)
  }
}

resource "google_cloud_scheduler_job" "sweep" {
  name             = "kickoff-sweep"
  description      = "Finds what no event told."
  schedule         = "* * * * *"
  time_zone        = "Etc/UTC"
  attempt_deadline = "540s"
  http_target {
    uri         = local.urls.sweep
    http_method = "POST"
    body        = base64encode("{}")
    headers     = { "Content-Type" = "application/json" }
    oidc_token {
      service_account_email = local.email.scheduler
      audience              = local.urls.sweep
    }
  }
  depends_on = [google_cloudfunctions2_function.this]
}

# The function finds the recipe by the job's name. A retry carries the same schedule time, so it starts nothing twice.
resource "google_cloud_scheduler_job" "recipe" {
  for_each         = local.schedules
  name             = "kickoff-${each.key}"
  description      = "Starts the recipe ${each.key}."
  schedule         = each.value.cron
  time_zone        = each.value.timezone
  paused           = each.value.paused
  attempt_deadline = "540s"
  retry_config {
    retry_count          = 5
    min_backoff_duration = "10s"
    max_backoff_duration = "300s"
    max_doublings        = 5
  }
  http_target {
    uri         = local.urls["start-training"]
    http_method = "POST"
    body        = base64encode("{}")
    headers     = { "Content-Type" = "application/json" }
    oidc_token {
      service_account_email = local.email.scheduler
      audience              = local.urls["start-training"]
    }
  }
  depends_on = [google_cloudfunctions2_function.this]
}
