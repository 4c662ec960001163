output "urls" {
  description = "Where the functions answer, to those who may call them."
  value       = local.urls
}

output "trainer_image" {
  description = "What recipes name as {trainer_image}, pinned by digest."
  value       = local.trainer_image
}

output "grants" {
  description = "Who may do what, and why: docs/security.md is made from it."
  value       = local.granted
}
