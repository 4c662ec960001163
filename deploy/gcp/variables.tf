variable "project" {
  description = "Google Cloud project id."
  type        = string
  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project))
    error_message = "project must be a project id: 6 to 30 lowercase letters, digits and hyphens."
  }
}

variable "project_number" {
  description = "Number of the project; null: looked up."
  type        = string
  default     = null
}

variable "region" {
  description = "Region of everything, also of the training jobs: Vertex AI has no multi-region jobs."
  type        = string
  default     = "us-central1"
}

variable "checkout" {
  description = "Folder of the Kickoff checkout to deploy; null: the one that this module lies in."
  type        = string
  default     = null
}

variable "trainer_image" {
  description = "An image pinned by digest to use as it is; null: built from the checkout's Dockerfile."
  type        = string
  default     = null
  validation {
    condition     = var.trainer_image == null || can(regex("@sha256:[0-9a-f]{64}$", var.trainer_image))
    error_message = "trainer_image must end in @sha256:<64 hex digits>: a tag can change under a running job."
  }
}

variable "trainer_accelerator" {
  description = "gpu: an image with CUDA, for every machine; cpu: 3 GB smaller, for recipes without accelerators."
  type        = string
  default     = "gpu"
  validation {
    condition     = contains(["cpu", "gpu"], var.trainer_accelerator)
    error_message = "trainer_accelerator must be cpu or gpu."
  }
}

variable "image_builder" {
  description = "What builds the trainer image: cloud-build, or the docker of the machine that runs Terraform."
  type        = string
  default     = "cloud-build"
  validation {
    condition     = contains(["cloud-build", "docker"], var.image_builder)
    error_message = "image_builder must be cloud-build or docker."
  }
}

variable "request_publishers" {
  description = "Members (user:…, group:…, serviceAccount:…) who may publish training requests. Each can spend money."
  type        = list(string)
  default     = []
  validation {
    condition     = !anytrue([for member in var.request_publishers : startswith(member, "all")])
    error_message = "request_publishers must not hold allUsers or allAuthenticatedUsers."
  }
}

variable "dashboard_users" {
  description = "Members who may open the dashboard."
  type        = list(string)
  default     = []
  validation {
    condition     = !anytrue([for member in var.dashboard_users : startswith(member, "all")])
    error_message = "dashboard_users must not hold allUsers or allAuthenticatedUsers."
  }
}

variable "page_actions" {
  description = "Whether the dashboard may cancel and rerun; without it, it only reads."
  type        = bool
  default     = false
}

variable "alert_email" {
  description = "Address that alerts go to; empty: the alert policies exist and notify nobody."
  type        = string
  default     = ""
}

variable "budget" {
  description = "Monthly budget in whole units of the billing account's currency; null: none."
  type        = object({ billing_account = string, amount = number })
  default     = null
}

variable "staging_days" {
  description = "Days that build sources are kept in the staging bucket. Dataset snapshots stay."
  type        = number
  default     = 30
}

variable "soft_delete_days" {
  description = "Days that deleted objects can be brought back: 0, or 7 to 90."
  type        = number
  default     = 7
}

variable "labels" {
  description = "Labels of everything that can carry labels, for the cost report."
  type        = map(string)
  default     = {}
}

variable "webhook" {
  description = "URL that gets a Slack-form message when a run ends; empty: none."
  type        = string
  default     = ""
  sensitive   = true
}
