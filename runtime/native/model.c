/* A model: the members of its file, and the kernels of the variant that suits this CPU best. */
#define _GNU_SOURCE
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SETTLED_NS 100000000
#define MOST_PLANS 512 /* sixteen combinations of shapes for each variant */
#define MOST_NARROW 65536 /* bytes; larger weights of narrow integers are factors of products */

static uint32_t count_plans(const kt_file *file) {
  uint32_t count = 0;
  for (char name[32];; count++) {
    snprintf(name, sizeof name, "plan%u.bin", count);
    if (!kt_file_has(file, name) || count > MOST_PLANS) return count;
  }
}

static bool are_weights_whole(const kt_model *model) {
  return kt_checksum(model->weights.data, model->weights.nbytes) == model->weights_checksum;
}

static bool is_same_stamp(kt_stamp one, kt_stamp other) {
  return one.written == other.written && one.changed == other.changed;
}

/* Whether later changes give another stamp: clocks of file systems tick every 1 to 10 ms. */
static bool is_settled(kt_stamp stamp) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  int64_t age = (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
  age -= stamp.written > stamp.changed ? stamp.written : stamp.changed;
  return age < 0 || age > SETTLED_NS;
}

/* The stamp of the file whose weights were verified; none while later changes may have the same one. */
static kt_stamp verified_stamp(const kt_model *model) {
  return (kt_stamp){atomic_load_explicit(&model->written, memory_order_relaxed),
                    atomic_load_explicit(&model->changed, memory_order_relaxed)};
}

/* Whether a kernel may use weights as indices. */
static bool may_be_indices(const kt_plan_tensor *tensor) {
  if (tensor->place != KT_AT_WEIGHTS || tensor->kind == KT_FLOAT || tensor->kind == KT_BFLOAT) return false;
  return tensor->nbytes > 0 && (tensor->bits >= 32 || tensor->nbytes <= MOST_NARROW);
}

/* Copies weights that may be indices where others can change the file: kernels do not check what a plan was built on,
 * and what is written in the middle of a run must not lead it outside of its memory. */
static kt_status copy_indices(const kt_model *model, const kt_plan *plan) {
  kt_status status = KT_OK;
  for (uint32_t i = 0; i < plan->header.tensor_count && status == KT_OK && model->file.watch != NULL; i++) {
    const kt_plan_tensor *tensor = &plan->tensors[i];
    kt_bytes part = {model->weights.data + tensor->offset, (size_t)tensor->nbytes};
    if (may_be_indices(tensor)) status = kt_watch_copy(model->file.watch, part);
  }
  return status;
}

/* Finds the part of the weights that these plans of a variant use, and verifies it. */
static kt_status load_weights(kt_model *model, const kt_plan *plans, uint32_t count) {
  const kt_plan_header *header = &plans->header;
  kt_bytes all;
  kt_status status = kt_file_member(&model->file, model->path, "weights.bin", &all);
  if (status != KT_OK) return status;
  if (header->weights_offset > all.nbytes || header->weights_bytes > all.nbytes - header->weights_offset)
    return kt_fail(KT_ERROR_FORMAT, "%s: damaged: weights.bin has another length", model->path);
  model->weights = (kt_bytes){all.data + header->weights_offset, (size_t)header->weights_bytes};
  kt_file_expect(&model->file, model->weights);
  model->weights_checksum = header->weights_checksum;
  kt_stamp stamp = {0, 0};
  if (model->file.watch != NULL && kt_watch_look(model->file.watch, &stamp) && !is_settled(stamp))
    stamp = (kt_stamp){0, 0};
  atomic_store(&model->written, stamp.written);
  atomic_store(&model->changed, stamp.changed);
  for (uint32_t i = 0; i < count && status == KT_OK; i++) status = copy_indices(model, &plans[i]);
  if (status == KT_OK && !are_weights_whole(model))
    return kt_fail(KT_ERROR_FORMAT, "%s: damaged: bad checksum of its weights; copy it again, or build it again",
                   model->path);
  return status;
}

static kt_status load_plan(const kt_model *model, kt_loaded_plan *loaded) {
  char name[32];
  kt_bytes content;
  snprintf(name, sizeof name, "lib%u.so", loaded->plan.header.number);
  kt_status status = kt_file_member(&model->file, model->path, name, &content);
  return status == KT_OK ? kt_library_load(content, &loaded->plan, model->path, &loaded->library) : status;
}

/* The names of the extensions that a plan uses, with spaces between them; NULL where no memory is left. */
static char *join_isa(const kt_plan *plan) {
  size_t size = 1;
  for (uint32_t i = 0; i < plan->header.isa_count; i++) size += strlen(plan->text + plan->isa[i]) + 1;
  char *joined = calloc(1, size), *end = joined;
  for (uint32_t i = 0; joined != NULL && i < plan->header.isa_count; i++) {
    if (i > 0) *end++ = ' ';
    end = stpcpy(end, plan->text + plan->isa[i]);
  }
  return joined;
}

/* Copies the manifest, which a file may lack. */
static kt_status copy_manifest(kt_model *model) {
  kt_bytes found;
  if (!kt_file_has(&model->file, "manifest.json")) return KT_OK;
  kt_status status = kt_file_member(&model->file, model->path, "manifest.json", &found);
  if (status != KT_OK) return status;
  uint8_t *copy = malloc(found.nbytes + 1);
  if (copy == NULL) return kt_fail(KT_ERROR_MEMORY, "no memory for a manifest");
  memcpy(copy, found.data, found.nbytes);
  model->manifest = (kt_bytes){copy, found.nbytes};
  return KT_OK;
}

/* Loads the plans, which belong to the model afterwards. */
static kt_status load_variant(kt_model *model, kt_plan *plans, uint32_t count) {
  model->isa = join_isa(plans);
  model->plans = calloc(count, sizeof *model->plans);
  if (model->isa == NULL || model->plans == NULL) return kt_fail(KT_ERROR_MEMORY, "no memory for %u plans", count);
  kt_status status = load_weights(model, plans, count);
  if (status == KT_OK) status = copy_manifest(model);
  for (uint32_t i = 0; i < count && status == KT_OK; i++) {
    model->plans[i].plan = plans[i];
    plans[i].memory = NULL;
    model->count++;
    status = load_plan(model, &model->plans[i]);
  }
  return status;
}

static kt_status open_plans(kt_model *model, int32_t wanted) {
  uint32_t count = count_plans(&model->file), first = 0, chosen = 0;
  if (count == 0) { /* to say whether the file is no zip, is damaged, or has an earlier format */
    kt_bytes none;
    if (kt_hybrid_is(&model->file)) return kt_hybrid_refuse(&model->file, model->path);
    kt_status status = kt_file_member(&model->file, model->path, "plan0.bin", &none);
    return status != KT_OK ? status : kt_fail(KT_ERROR_FORMAT, "%s: damaged", model->path);
  }
  if (count > MOST_PLANS) return kt_fail(KT_ERROR_FORMAT, "%s: damaged: it has more than %d plans", model->path, MOST_PLANS);
  kt_plan *plans = calloc(count, sizeof *plans);
  if (plans == NULL) return kt_fail(KT_ERROR_MEMORY, "no memory for %u plans", count);
  kt_status status = kt_variants_read(&model->file, model->path, plans, count);
  if (status == KT_OK) status = kt_variants_choose(plans, count, wanted, model->path, &first, &chosen);
  if (status == KT_OK) {
    model->variant_count = (int32_t)plans[count - 1].header.variant + 1;
    status = load_variant(model, plans + first, chosen);
  }
  for (uint32_t i = 0; i < count; i++) kt_plan_free(&plans[i]);
  free(plans);
  return status;
}

static kt_status changed_in_place(const kt_model *model) {
  return kt_fail(KT_ERROR_FILE, "%s: was changed in place while it was open; open it again, and replace such files by"
                 " renaming (mv), or open a private copy", model->path);
}

kt_status kt_model_check(kt_model *model, kt_stamp *stamp) {
  kt_watch *watch = model->file.watch;
  kt_stamp verified = verified_stamp(model);
  *stamp = verified;
  if (watch == NULL) return KT_OK;
  if (!kt_watch_look(watch, stamp)) return changed_in_place(model);
  if (is_same_stamp(*stamp, verified)) return KT_OK;
  /* it has another name or other permissions, or was written to: perhaps the same as before; names and permissions may
   * change once more meanwhile, then the next check verifies it again */
  kt_stamp after = *stamp;
  if (!are_weights_whole(model) || !kt_watch_look(watch, &after) || after.written != stamp->written)
    return changed_in_place(model);
  if (is_same_stamp(after, *stamp) && is_settled(*stamp)) {
    atomic_store(&model->written, stamp->written);
    atomic_store(&model->changed, stamp->changed);
  }
  return KT_OK;
}

kt_status kt_model_check_again(kt_model *model, kt_stamp stamp) {
  kt_watch *watch = model->file.watch;
  kt_stamp now = stamp;
  if (watch == NULL) return KT_OK;
  if (!kt_watch_look(watch, &now) || now.written != stamp.written) return changed_in_place(model);
  if (!is_same_stamp(now, stamp)) return kt_model_check(model, &now);
  if (is_same_stamp(stamp, verified_stamp(model)) || are_weights_whole(model)) return KT_OK;
  return changed_in_place(model); /* written to twice within a tick */
}

static kt_status open_file(kt_file file, const char *path, int32_t variant, kt_model **made) {
  kt_model *model = calloc(1, sizeof *model);
  if (model == NULL || (model->path = strdup(path)) == NULL) {
    free(model);
    kt_file_unmap(&file);
    return kt_fail(KT_ERROR_MEMORY, "no memory");
  }
  atomic_store(&model->references, 1);
  model->file = file;
  kt_status status = open_plans(model, variant);
  kt_stamp stamp;
  if (status == KT_OK) status = kt_model_check(model, &stamp);
  if (status != KT_OK) {
    kt_model_release(model);
    return status;
  }
  *made = model;
  return KT_OK;
}

kt_status kt_open(const char *path, kt_model **model) { return kt_open_variant(path, KT_BEST, model); }

kt_status kt_open_variant(const char *path, int32_t variant, kt_model **model) {
  kt_open_options options = {.size = sizeof options, .variant = variant};
  return kt_open_with(path, &options, model);
}

static kt_status check_options(const kt_open_options *options, const char *function) {
  if (options == NULL) return kt_fail(KT_ERROR_ARGUMENT, "%s: a null pointer", function);
  if (options->size < sizeof *options)
    return kt_fail(KT_ERROR_ARGUMENT, "%s: options.size is %u, not sizeof(kt_open_options)", function, options->size);
  return KT_OK;
}

/* Opens what was mapped or copied; with a trusted key, what was copied must be signed with it. */
static kt_status open_trusted(kt_file file, const char *name, const kt_open_options *options, kt_model **model) {
  kt_status status = options->trusted == NULL ? KT_OK : kt_signature_check(file.whole, options->trusted, name);
  if (status == KT_OK) return open_file(file, name, options->variant, model);
  kt_file_unmap(&file);
  return status;
}

kt_status kt_open_with(const char *path, const kt_open_options *options, kt_model **model) {
  if (path == NULL || model == NULL) return kt_fail(KT_ERROR_ARGUMENT, "kt_open: a null pointer");
  *model = NULL;
  kt_status status = check_options(options, "kt_open_with");
  if (status != KT_OK) return status;
  kt_file file;
  const char *name = options->name != NULL ? options->name : path;
  bool copy = options->copy || options->trusted != NULL;
  status = copy ? kt_file_read(path, name, &file) : kt_file_map(path, name, &file);
  return status == KT_OK ? open_trusted(file, name, options, model) : status;
}

kt_status kt_open_memory(const void *data, size_t nbytes, kt_model **model) {
  kt_open_options options = {.size = sizeof options, .variant = KT_BEST};
  return kt_open_memory_with(data, nbytes, &options, model);
}

kt_status kt_open_memory_with(const void *data, size_t nbytes, const kt_open_options *options, kt_model **model) {
  if (data == NULL || model == NULL) return kt_fail(KT_ERROR_ARGUMENT, "kt_open_memory: a null pointer");
  *model = NULL;
  kt_status status = check_options(options, "kt_open_memory_with");
  if (status != KT_OK) return status;
  const char *name = options->name != NULL ? options->name : "(memory)";
  kt_file file = {{data, nbytes}, false, NULL};
  if (options->copy || options->trusted != NULL) status = kt_file_copy(file.whole, name, &file);
  else if ((uintptr_t)data % KT_ALIGNMENT != 0)
    status = kt_fail(KT_ERROR_ARGUMENT, "kt_open_memory: the contents are not at a multiple of %d bytes", KT_ALIGNMENT);
  return status == KT_OK ? open_trusted(file, name, options, model) : status;
}

kt_status kt_model_open_part(const kt_file *within, kt_bytes content, const char *name, kt_model **model) {
  *model = NULL;
  return open_file((kt_file){content, false, within->watch}, name, KT_BEST, model);
}

kt_status kt_open_member(const char *path, const char *member, const char *name, kt_model **model) {
  kt_file file;
  kt_bytes content;
  *model = NULL;
  kt_status status = kt_file_map(path, name, &file);
  if (status != KT_OK) return status;
  status = kt_file_member(&file, name, member, &content);
  if (status == KT_OK) status = kt_model_open_part(&file, content, name, model);
  if (status == KT_OK) (*model)->around = file;
  else kt_file_unmap(&file);
  return status;
}

void kt_model_release(kt_model *model) {
  if (atomic_fetch_sub(&model->references, 1) != 1) return;
  for (int32_t i = 0; i < model->count; i++) {
    kt_library_unload(&model->plans[i].library);
    kt_plan_free(&model->plans[i].plan);
  }
  free(model->plans);
  free(model->isa);
  free((void *)model->manifest.data);
  kt_file_unmap(&model->file);
  kt_file_unmap(&model->around);
  free(model->path);
  free(model);
}

void kt_close(kt_model *model) {
  if (model != NULL) kt_model_release(model);
}

const char *kt_manifest(const kt_model *model, size_t *nbytes) {
  if (model == NULL || nbytes == NULL || model->manifest.data == NULL) return NULL;
  *nbytes = model->manifest.nbytes;
  return (const char *)model->manifest.data;
}

kt_status kt_describe_variant(const kt_model *model, kt_variant *variant) {
  if (model == NULL || variant == NULL) return kt_fail(KT_ERROR_ARGUMENT, "kt_describe_variant: a null pointer");
  const kt_plan *plan = &model->plans[0].plan;
  const kt_plan_header *header = &plan->header;
  *variant = (kt_variant){(int32_t)header->variant, model->variant_count,     plan->text + header->machine,
                          plan->text + header->cpu, model->isa,               (int32_t)header->threads};
  return KT_OK;
}

int32_t kt_plan_count(const kt_model *model) { return model == NULL ? 0 : model->count; }

int32_t kt_input_count(const kt_model *model) {
  return model == NULL ? 0 : (int32_t)model->plans[0].plan.header.input_count;
}

int32_t kt_output_count(const kt_model *model) {
  return model == NULL ? 0 : (int32_t)kt_plan_own_outputs(&model->plans[0].plan);
}

static kt_status describe(const kt_model *model, int32_t plan, int32_t place, bool output, kt_tensor *described) {
  if (model == NULL || described == NULL) return kt_fail(KT_ERROR_ARGUMENT, "kt_describe: a null pointer");
  int32_t count = output ? kt_output_count(model) : kt_input_count(model);
  if (plan < 0 || plan >= model->count || place < 0 || place >= count)
    return kt_fail(KT_ERROR_ARGUMENT, "kt_describe: no plan %d, or no %s %d", plan, output ? "output" : "input", place);
  const kt_plan *of = &model->plans[plan].plan;
  kt_plan_describe(of, output ? &of->outputs[place] : &of->inputs[place], described);
  return KT_OK;
}

kt_status kt_describe_input(const kt_model *model, int32_t plan, int32_t place, kt_tensor *tensor) {
  return describe(model, plan, place, false, tensor);
}

kt_status kt_describe_output(const kt_model *model, int32_t plan, int32_t place, kt_tensor *tensor) {
  return describe(model, plan, place, true, tensor);
}

kt_status kt_describe_range(const kt_model *model, int32_t plan, int32_t place, int32_t axis, kt_range *range) {
  kt_tensor tensor;
  if (range == NULL) return kt_fail(KT_ERROR_ARGUMENT, "kt_describe_range: a null pointer");
  kt_status status = describe(model, plan, place, false, &tensor);
  if (status != KT_OK) return status;
  if (axis < 0 || axis >= tensor.rank) return kt_fail(KT_ERROR_ARGUMENT, "kt_describe_range: no axis %d", axis);
  *range = kt_plan_range(&model->plans[plan].plan, (uint32_t)place, (uint32_t)axis);
  return KT_OK;
}
