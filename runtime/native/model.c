/* A model: the members of its file, and of each plan that this CPU can run its kernels. */
#define _GNU_SOURCE
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static kt_status read_variant(const kt_model *model, int number, kt_plan *plan) {
  char name[32];
  kt_bytes content;
  snprintf(name, sizeof name, "plan%d.bin", number);
  kt_status status = kt_file_member(&model->file, model->path, name, &content);
  return status == KT_OK ? kt_plan_read(content, model->path, plan) : status;
}

static kt_status load_variant(const kt_model *model, int number, kt_variant *variant) {
  char name[32];
  kt_bytes content;
  snprintf(name, sizeof name, "lib%d.so", number);
  kt_status status = kt_file_member(&model->file, model->path, name, &content);
  if (status != KT_OK) return status;
  if ((status = kt_cpu_prepare(&variant->plan)) != KT_OK) return status;
  return kt_library_load(content, &variant->plan, model->path, &variant->library);
}

static bool same_ports(const kt_plan *one, const kt_plan *other) {
  return one->header.input_count == other->header.input_count && kt_plan_own_outputs(one) == kt_plan_own_outputs(other);
}

/* The plans that this CPU can run, those of the later place first where two are for the same shapes: see `merge`. */
static kt_status open_variants(kt_model *model) {
  char missing[256] = "";
  int count = 0;
  for (char name[32];; count++) {
    snprintf(name, sizeof name, "plan%d.bin", count);
    if (!kt_file_has(&model->file, name)) break;
  }
  if (count == 0) { /* the text that fits: not a zip, damaged, or of an earlier format */
    kt_plan none;
    kt_status status = read_variant(model, 0, &none);
    return status != KT_OK ? status : kt_fail(KT_ERROR_FORMAT, "%s: damaged", model->path);
  }
  model->variants = calloc((size_t)count, sizeof *model->variants);
  if (model->variants == NULL) return kt_fail(KT_ERROR_MEMORY, "no memory for %d plans", count);
  for (int i = 0; i < count; i++) {
    kt_variant *variant = &model->variants[model->count];
    kt_status status = read_variant(model, i, &variant->plan);
    if (status != KT_OK) return status;
    const kt_plan_header *header = &variant->plan.header;
    if (header->number != (uint32_t)i || header->total != (uint32_t)count)
      return kt_fail(KT_ERROR_FORMAT, "%s: damaged: a plan is missing", model->path);
    if (header->weights_bytes != model->weights.nbytes)
      return kt_fail(KT_ERROR_FORMAT, "%s: damaged: weights.bin has another length", model->path);
    if (i == 0 && kt_checksum(model->weights.data, model->weights.nbytes) != header->weights_checksum)
      return kt_fail(KT_ERROR_FORMAT, "%s: damaged: bad checksum of its weights; copy it again, or build it again",
                     model->path);
    if (i > 0 && header->weights_checksum != model->checksum)
      return kt_fail(KT_ERROR_FORMAT, "%s: damaged: its plans are for other weights", model->path);
    model->checksum = header->weights_checksum;
    if (!kt_cpu_runs(&variant->plan, missing, sizeof missing)) continue;
    if (model->count > 0 && !same_ports(&model->variants[0].plan, &variant->plan))
      return kt_fail(KT_ERROR_FORMAT, "%s: damaged: its plans have different inputs", model->path);
    if ((status = load_variant(model, i, variant)) != KT_OK) return status;
    model->count++;
  }
  if (model->count > 0) return KT_OK;
  return kt_fail(KT_ERROR_UNSUPPORTED, "%s: %s; build it again for this machine with `kintune compile`", model->path,
                 missing);
}

static kt_status open_file(kt_file file, const char *path, kt_model **made) {
  kt_model *model = calloc(1, sizeof *model);
  if (model == NULL || (model->path = strdup(path)) == NULL) {
    free(model);
    kt_file_unmap(&file);
    return kt_fail(KT_ERROR_MEMORY, "no memory");
  }
  atomic_store(&model->references, 1);
  model->file = file;
  kt_status status = kt_file_member(&model->file, model->path, "weights.bin", &model->weights);
  if (status == KT_OK) status = open_variants(model);
  if (status != KT_OK) {
    kt_model_release(model);
    return status;
  }
  *made = model;
  return KT_OK;
}

kt_status kt_open(const char *path, kt_model **model) {
  if (path == NULL || model == NULL) return kt_fail(KT_ERROR_ARGUMENT, "kt_open: a null pointer");
  *model = NULL;
  kt_file file;
  kt_status status = kt_file_map(path, &file);
  return status == KT_OK ? open_file(file, path, model) : status;
}

kt_status kt_open_memory(const void *data, size_t nbytes, kt_model **model) {
  if (data == NULL || model == NULL) return kt_fail(KT_ERROR_ARGUMENT, "kt_open_memory: a null pointer");
  *model = NULL;
  if ((uintptr_t)data % KT_ALIGNMENT != 0)
    return kt_fail(KT_ERROR_ARGUMENT, "kt_open_memory: the contents are not at a multiple of %d bytes", KT_ALIGNMENT);
  return open_file((kt_file){{data, nbytes}, false}, "(memory)", model);
}

void kt_model_release(kt_model *model) {
  if (atomic_fetch_sub(&model->references, 1) != 1) return;
  for (int32_t i = 0; i < model->count; i++) kt_library_unload(&model->variants[i].library);
  free(model->variants);
  kt_file_unmap(&model->file);
  free(model->path);
  free(model);
}

void kt_close(kt_model *model) {
  if (model != NULL) kt_model_release(model);
}

const char *kt_manifest(const kt_model *model, size_t *nbytes) {
  kt_bytes content;
  if (model == NULL || nbytes == NULL || kt_file_member(&model->file, model->path, "manifest.json", &content) != KT_OK)
    return NULL;
  *nbytes = content.nbytes;
  return (const char *)content.data;
}

int32_t kt_plan_count(const kt_model *model) { return model == NULL ? 0 : model->count; }

int32_t kt_input_count(const kt_model *model) {
  return model == NULL ? 0 : (int32_t)model->variants[0].plan.header.input_count;
}

int32_t kt_output_count(const kt_model *model) {
  return model == NULL ? 0 : (int32_t)kt_plan_own_outputs(&model->variants[0].plan);
}

static kt_status describe(const kt_model *model, int32_t plan, int32_t place, bool output, kt_tensor *described) {
  if (model == NULL || described == NULL) return kt_fail(KT_ERROR_ARGUMENT, "kt_describe: a null pointer");
  int32_t count = output ? kt_output_count(model) : kt_input_count(model);
  if (plan < 0 || plan >= model->count || place < 0 || place >= count)
    return kt_fail(KT_ERROR_ARGUMENT, "kt_describe: no plan %d, or no %s %d", plan, output ? "output" : "input", place);
  const kt_plan *of = &model->variants[plan].plan;
  const kt_plan_port *port = output ? &of->outputs[place] : &of->inputs[place];
  const kt_plan_tensor *tensor = &of->tensors[port->tensor];
  *described = (kt_tensor){of->text + port->name, of->extents + tensor->extents, tensor->rank, tensor->kind,
                           tensor->bits,          (size_t)tensor->nbytes};
  return KT_OK;
}

kt_status kt_describe_input(const kt_model *model, int32_t plan, int32_t place, kt_tensor *tensor) {
  return describe(model, plan, place, false, tensor);
}

kt_status kt_describe_output(const kt_model *model, int32_t plan, int32_t place, kt_tensor *tensor) {
  return describe(model, plan, place, true, tensor);
}
