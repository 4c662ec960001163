resource "google_storage_bucket" "data" {
  name                        = "${var.project}-data"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = false
  labels                      = local.labels
  soft_delete_policy {
    retention_duration_seconds = var.soft_delete_days * 86400
  }
  # An upload in parts that broke off is billed until somebody ends it.
  lifecycle_rule {
    action {
      type = "AbortIncompleteMultipartUpload"
    }
    condition {
      age = 7
    }
  }
  depends_on = [google_project_service.this]
}

resource "google_storage_bucket" "models" {
  name                        = "${var.project}-models"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = false
  labels                      = local.labels
  soft_delete_policy {
    retention_duration_seconds = var.soft_delete_days * 86400
  }
  # An upload in parts that broke off is billed until somebody ends it.
  lifecycle_rule {
    action {
      type = "AbortIncompleteMultipartUpload"
    }
    condition {
      age = 7
    }
  }
  depends_on = [google_project_service.this]
}

resource "google_storage_bucket" "staging" {
  name                        = "${var.project}-staging"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = true
  labels                      = local.labels
  soft_delete_policy {
    retention_duration_seconds = 0
  }
  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      age            = var.staging_days
      matches_prefix = ["builds/"]
    }
  }
  lifecycle_rule {
    action {
      type = "AbortIncompleteMultipartUpload"
    }
    condition {
      age = 7
    }
  }
  depends_on = [google_project_service.this]
}

# Reading it makes the project's Cloud Storage agent exist; its address is known beforehand.
data "google_storage_project_service_account" "this" {
  project    = var.project
  depends_on = [google_project_service.this]
}

resource "google_storage_notification" "uploads" {
  bucket         = google_storage_bucket.data.name
  topic          = "projects/${var.project}/topics/dataset-uploads"
  event_types    = ["OBJECT_FINALIZE"]
  payload_format = "JSON_API_V1"
  depends_on     = [google_pubsub_topic.this, google_pubsub_topic_iam_member.this]
}
