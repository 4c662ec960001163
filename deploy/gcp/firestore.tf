# Declared beside the ledger that queries them; quickstart.sh reads the same file.
locals {
  indexes_file = "${local.functions}/kickoff/ledger/firestore.indexes.json"
  declared     = jsondecode(fileexists(local.indexes_file) ? file(local.indexes_file) : "{\"indexes\": [], \"fieldOverrides\": []}")
  indexes = {
    for index in local.declared.indexes :
    join(" ", concat([index.collectionGroup], [for field in index.fields : "${field.fieldPath}:${field.order}"])) => index
  }
  fields = { for field in local.declared.fieldOverrides : "${field.collectionGroup} ${field.fieldPath}" => field }
}

# A database of its own: a project whose (default) one is in Datastore mode works too, and IAM can be given for it alone.
resource "google_firestore_database" "kickoff" {
  name                              = "kickoff"
  location_id                       = var.region
  type                              = "FIRESTORE_NATIVE"
  concurrency_mode                  = "OPTIMISTIC"
  point_in_time_recovery_enablement = "POINT_IN_TIME_RECOVERY_ENABLED"
  deletion_policy                   = "DELETE"
  depends_on                        = [google_project_service.this]
}

resource "google_firestore_index" "this" {
  for_each    = local.indexes
  database    = google_firestore_database.kickoff.name
  collection  = each.value.collectionGroup
  query_scope = each.value.queryScope
  dynamic "fields" {
    for_each = each.value.fields
    content {
      field_path = fields.value.fieldPath
      order      = fields.value.order
    }
  }
}

# Records are JSON text: indexing it would cost more than storing it. A field with a time to live keeps its index: Firestore takes
# one change of a field at a time.
resource "google_firestore_field" "this" {
  for_each   = local.fields
  database   = google_firestore_database.kickoff.name
  collection = each.value.collectionGroup
  field      = each.value.fieldPath
  dynamic "index_config" {
    for_each = length(each.value.indexes) == 0 ? [1] : []
    content {}
  }
  # Of bulky details alone: a run's record, its key and what belongs to it never expire.
  dynamic "ttl_config" {
    for_each = lookup(each.value, "ttl", false) ? [1] : []
    content {}
  }
}
