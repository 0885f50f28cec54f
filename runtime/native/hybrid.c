/* A file that runs partly in onnxruntime: `graph.onnx`, and `regionN.kt`, each of which is a whole file for CPUs. */
#define _GNU_SOURCE
#include "internal.h"

#include <stdio.h>
#include <string.h>

bool kt_hybrid_is(const kt_file *file) { return kt_file_has(file, "graph.onnx"); }

enum { MOST_REGIONS = 4096 };

uint32_t kt_hybrid_count(const kt_file *file) {
  uint32_t count = 0;
  for (char name[32];; count++) {
    snprintf(name, sizeof name, "region%u.kt", count);
    if (!kt_file_has(file, name) || count == MOST_REGIONS) return count;
  }
}

kt_status kt_hybrid_open(const kt_file *file, const char *path, uint32_t number, kt_model **model) {
  char name[32], whole[512];
  kt_bytes content;
  snprintf(name, sizeof name, "region%u.kt", number);
  kt_status status = kt_file_member(file, path, name, &content);
  if (status != KT_OK) return status;
  snprintf(whole, sizeof whole, "%.400s: %s", path, name);
  return kt_model_open_part(file, content, whole, model);
}

/* Appends the names of the operators that are left to onnxruntime, as the manifest has them; "" if it has none. */
static void list_operators(kt_bytes manifest, char *text, size_t size) {
  /* this cannot occur inside a string of JSON, where quotes are escaped by backslashes */
  static const char key[] = "\"operators\":{";
  const char *end = (const char *)manifest.data + manifest.nbytes;
  const char *at = memmem(manifest.data, manifest.nbytes, key, sizeof key - 1);
  size_t used = 0;
  *text = '\0';
  if (at == NULL) return;
  for (at += sizeof key - 1; at < end && *at == '"';) {
    const char *start = ++at;
    while (at < end && *at != '"') at += *at == '\\' ? 2 : 1;
    if (at >= end) return;
    const char *separator = used ? ", " : "";
    int length = (int)(at - start < 60 ? at - start : 60);
    if (used + (size_t)length + 8 > size) {
      snprintf(text + used, size - used, ", ...");
      return;
    }
    used += (size_t)snprintf(text + used, size - used, "%s%.*s", separator, length, start);
    while (at < end && *at != ',' && *at != '}') at++;
    if (at >= end || *at == '}') return;
    at++;
  }
}

kt_status kt_hybrid_refuse(const kt_file *file, const char *path) {
  char operators[400];
  kt_bytes manifest;
  kt_status status = kt_file_member(file, path, "manifest.json", &manifest);
  if (status != KT_OK) return status;
  list_operators(manifest, operators, sizeof operators);
  return kt_fail(KT_ERROR_UNSUPPORTED,
                 "%s: runs partly in onnxruntime (%s): open it with kintune_runtime, or export it with --to onnx", path,
                 *operators ? operators : "all of it");
}
