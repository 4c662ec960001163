# The registry and the image are made by gcloud, in the scripts that quickstart.sh runs too: the image must be in the
# registry before anything can name its digest, and no resource of the provider builds one.

locals {
  repository  = "projects/${var.project}/locations/${var.region}/repositories/kickoff"
  image_files = concat(["Dockerfile"], [for file in fileset(local.checkout, "trainer/**") : file if !endswith(file, ".pyc")])
  # As trainer_image.sh computes it: the hash of sha256sum's lines.
  image_tag = "${var.trainer_accelerator}-${substr(sha256(join("", [
    for file in local.image_files : "${try(filesha256("${local.checkout}/${file}"), "none")}  ${file}\n"
  ])), 0, 16)}"
  # self_link: LOCATION-docker.pkg.dev/PROJECT/kickoff/trainer@sha256:…
  trainer_image = coalesce(var.trainer_image, one(data.google_artifact_registry_docker_image.trainer[*].self_link))
}

resource "terraform_data" "registry" {
  input = { project = var.project, region = var.region, script = abspath("${path.module}/registry.sh") }
  provisioner "local-exec" {
    command = "${self.input.script} ${self.input.project} ${self.input.region}"
  }
  provisioner "local-exec" {
    when    = destroy
    command = "gcloud artifacts repositories delete kickoff --location=${self.input.region} --project=${self.input.project} --quiet"
  }
  depends_on = [google_project_service.this]
}

resource "terraform_data" "trainer_image" {
  count            = var.trainer_image == null ? 1 : 0
  triggers_replace = [local.image_tag, filesha256("${path.module}/cleanup.json")]
  provisioner "local-exec" {
    command     = "${abspath(path.module)}/trainer_image.sh ${var.project} ${var.region} ${var.trainer_accelerator} ${var.image_builder}"
    working_dir = local.checkout
  }
  depends_on = [
    terraform_data.registry,
    google_artifact_registry_repository_iam_member.this,
    google_project_iam_member.this,
    google_storage_bucket_iam_member.this,
  ]
}

data "google_artifact_registry_docker_image" "trainer" {
  count         = var.trainer_image == null ? 1 : 0
  location      = var.region
  repository_id = "kickoff"
  image_name    = "trainer:${local.image_tag}"
  depends_on    = [terraform_data.trainer_image]
}
