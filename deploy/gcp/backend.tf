# `kickoff deploy` keeps the state in gs://PROJECT-kickoff-state, which it makes; a module of your own has its own backend.
terraform {
  backend "gcs" {
    prefix = "kickoff"
  }
}
