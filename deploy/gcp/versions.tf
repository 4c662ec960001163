terraform {
  required_version = ">= 1.7"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 6.50, < 7"
    }
  }
}

provider "google" {
  project        = var.project
  region         = var.region
  default_labels = local.labels
}

# The budgets API answers a person's own credentials only when the call names a project to be counted against.
provider "google" {
  alias                 = "billing"
  project               = var.project
  billing_project       = var.project
  user_project_override = true
}
