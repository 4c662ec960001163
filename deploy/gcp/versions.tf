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
