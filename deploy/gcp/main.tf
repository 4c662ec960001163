locals {
  checkout  = coalesce(var.checkout, "${path.module}/../..")
  functions = "${local.checkout}/functions"
  labels    = merge({ app = "kickoff" }, var.labels)
  number    = coalesce(var.project_number, one(data.google_project.this[*].number))
  apis = toset([
    "aiplatform", "artifactregistry", "billingbudgets", "cloudbuild", "cloudfunctions", "cloudresourcemanager",
    "cloudscheduler", "firestore", "iam", "logging", "monitoring", "pubsub", "run", "storage",
  ])
}

data "google_project" "this" {
  count      = var.project_number == null ? 1 : 0
  project_id = var.project
  depends_on = [google_project_service.this]
}

resource "google_project_service" "this" {
  for_each           = local.apis
  project            = var.project
  service            = "${each.key}.googleapis.com"
  disable_on_destroy = false # others in the project may use it
}

check "checkout" {
  assert {
    condition     = fileexists("${local.functions}/main.py")
    error_message = "There is no functions/main.py in ${local.checkout}: set the variable checkout to Kickoff's folder."
  }
}
