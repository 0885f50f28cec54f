/* Registers `model.kt`, the file beside this library, in onnxruntime: as one custom operator, or where the file runs
 * partly in onnxruntime as one for each of its regions.
 *
 * onnxruntime loads the library, and calls `RegisterCustomOps`.  The library is not a part of libkintune.so; it has all
 * of the runtime itself. */
#define _GNU_SOURCE
#include "onnx_interface.h"

#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One for each copy of onnxruntime in the process. */
typedef struct registration {
  ort_api api;
  ort_domain *domain;
  struct registration *next;
  kt_operator operators[]; /* as many as there are networks */
} registration;

/* What the file holds; opened at the first registration, closed when the library is unloaded. */
static struct {
  bool opened;
  kt_file file; /* mapped, where it has regions */
  kt_network *networks;
  size_t count;
} held;

static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;
static registration *registrations;
static char domain_name[] = "kintune.0123456789abcdef";

/* ---- the file ---- */

/* Copies the first 16 digits of the model's digest from its manifest into `domain_name`. */
static kt_status name_domain(const char *text, size_t nbytes) {
  static const char key[] = "\"model_digest\"";
  size_t length = sizeof key - 1;
  char *digits = strchr(domain_name, '.') + 1;
  const char *at = text == NULL ? NULL : memmem(text, nbytes, key, length);
  if (at != NULL) {
    const char *end = text + nbytes;
    at += length;
    while (at < end && (isspace((unsigned char)*at) || *at == ':' || *at == '"')) at++;
    size_t count = 0;
    while (count < 16 && at + count < end && isxdigit((unsigned char)at[count])) count++;
    if (count == 16) {
      memcpy(digits, at, count);
      return KT_OK;
    }
  }
  return kt_fail(KT_ERROR_FORMAT, "model.kt has no digest of its model; export it again");
}

static kt_status open_network(const char *path) {
  kt_network *own = held.networks;
  strcpy(own->name, "KintuneNetwork");
  kt_status status = kt_open(path, &own->model);
  if (status != KT_OK) return status;
  held.count = 1;
  size_t nbytes = 0;
  const char *manifest = kt_manifest(own->model, &nbytes);
  status = kt_network_describe(own);
  return status == KT_OK ? name_domain(manifest, nbytes) : status;
}

static kt_status open_regions(const char *path) {
  kt_bytes manifest;
  kt_status status = kt_file_member(&held.file, path, "manifest.json", &manifest);
  if (status == KT_OK) status = name_domain((const char *)manifest.data, manifest.nbytes);
  for (uint32_t count = kt_hybrid_count(&held.file); held.count < count && status == KT_OK; held.count++) {
    kt_network *own = &held.networks[held.count];
    own->is_region = true;
    snprintf(own->name, sizeof own->name, "Region%zu", held.count);
    status = kt_hybrid_open(&held.file, path, (uint32_t)held.count, &own->model);
    if (status == KT_OK) status = kt_network_describe(own);
  }
  return status;
}

static void close_all(void) {
  for (size_t i = 0; i < held.count; i++) kt_network_close(&held.networks[i]);
  free(held.networks);
  if (held.file.mapped) kt_file_unmap(&held.file);
  memset(&held, 0, sizeof held);
}

static kt_status open_file(const char *path) {
  kt_status status = kt_file_map(path, path, &held.file);
  if (status != KT_OK) return status;
  bool regions = kt_hybrid_is(&held.file);
  size_t count = regions ? kt_hybrid_count(&held.file) : 1;
  held.networks = calloc(count + 1, sizeof *held.networks);
  if (held.networks == NULL) status = kt_fail(KT_ERROR_MEMORY, "no memory for %zu operators", count);
  if (!regions) kt_file_unmap(&held.file); /* the runtime maps it itself */
  if (status == KT_OK) status = regions ? open_regions(path) : open_network(path);
  if (status == KT_OK) held.opened = true;
  else close_all();
  return status;
}

/* Opens `model.kt` in the directory of this library. */
static kt_status open_beside(void) {
  static const char name[] = "model.kt";
  Dl_info own;
  if (dladdr(domain_name, &own) == 0 || own.dli_fname == NULL) return kt_fail(KT_ERROR_FILE, "the library has no path");
  const char *slash = strrchr(own.dli_fname, '/');
  size_t length = slash == NULL ? 0 : (size_t)(slash - own.dli_fname) + 1;
  char *path = malloc(length + sizeof name);
  if (path == NULL) return kt_fail(KT_ERROR_MEMORY, "no memory for a path");
  memcpy(path, own.dli_fname, length);
  memcpy(path + length, name, sizeof name);
  kt_status status = open_file(path);
  free(path);
  return status;
}

/* ---- registration ---- */

static ort_status *add_registration(ort_api api, uint32_t version, registration **made) {
  registration *own = calloc(1, sizeof *own + held.count * sizeof *own->operators);
  if (own == NULL) return make_status(api, ORT_FAIL, "no memory for an operator");
  own->api = api;
  ort_status *status = ((ort_status * (*)(const char *, ort_domain **)) api[CREATE_DOMAIN])(domain_name, &own->domain);
  for (size_t i = 0; i < held.count && status == NULL; i++) {
    kt_operator_make(&own->operators[i], api, version, &held.networks[i]);
    status = ((ort_status * (*)(ort_domain *, const ort_custom_op *)) api[DOMAIN_ADD])(own->domain, &own->operators[i].op);
  }
  if (status == NULL) {
    own->next = registrations;
    *made = registrations = own;
    return NULL;
  }
  if (own->domain != NULL) ((void (*)(ort_domain *))api[RELEASE_DOMAIN])(own->domain);
  free(own);
  return status;
}

static ort_status *add_to(ort_options *options, ort_api api, uint32_t version) {
  registration *own = registrations;
  if (!held.opened) {
    kt_status failed = open_beside();
    if (failed != KT_OK) return runtime_error(api, failed);
  }
  if (held.count == 0) return NULL; /* all of it runs in onnxruntime */
  while (own != NULL && own->api != api) own = own->next;
  if (own == NULL) {
    ort_status *status = add_registration(api, version, &own);
    if (status != NULL) return status;
  }
  return ((ort_status * (*)(ort_options *, ort_domain *)) api[ADD_DOMAIN])(options, own->domain);
}

/* What onnxruntime calls for each session options with which the library is registered. */
KT_API ort_status *RegisterCustomOps(ort_options *options, const ort_api_base *base);

KT_API ort_status *RegisterCustomOps(ort_options *options, const ort_api_base *base) {
  unsigned major = 1, version = 0;
  if (sscanf(base->get_version(), "%u.%u", &major, &version) != 2 || major > 1 || version > API_PARALLEL_FOR)
    version = API_PARALLEL_FOR;
  ort_api api = base->get_api(version);
  if (api == NULL) return NULL; /* without its functions no error can be made; sessions will not know the operator */
  pthread_mutex_lock(&registering);
  ort_status *status = add_to(options, api, version);
  pthread_mutex_unlock(&registering);
  return status;
}

/* onnxruntime unloads the library after the last session that uses it. */
__attribute__((destructor)) static void forget(void) {
  while (registrations != NULL) {
    registration *own = registrations;
    registrations = own->next;
    ((void (*)(ort_domain *))own->api[RELEASE_DOMAIN])(own->domain);
    free(own);
  }
  close_all();
}
