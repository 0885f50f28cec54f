/* A context: the memory between the kernels of one plan, and its threads; and the run of the plan. */
#define _GNU_SOURCE
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define DL_CPU 1

struct kt_context {
  kt_model *model;
  const kt_plan *open; /* that of the model */
  const kt_plan *plan; /* the same, or `shaped` */
  kt_plan shaped;      /* of an open plan, for the shapes that were set last */
  const kt_kernel *kernels;
  kt_pool *pool;
  atomic_uint user; /* 0 while no thread uses it, else one more than kt_fork_count() when its user began */
  kt_hook hook;
  void *hook_user;
  uint8_t *arena; /* behind it, room for inputs and outputs whose memory is not aligned, and for checked indices */
  size_t arena_bytes;
  uint8_t **input_room;
  uint8_t **output_room;
  bool *copied; /* by input: whether it is copied before this run */
  kt_dltensor *tensors;
  kt_any *arguments;
  uint32_t *moving; /* the tensors that lie in inputs or outputs: their addresses change from run to run */
  uint32_t moving_count;
};

static size_t aligned(size_t size) { return (size + KT_ALIGNMENT - 1) / KT_ALIGNMENT * KT_ALIGNMENT; }

/* DLPack's codes of element types. */
static uint8_t code_of(uint8_t kind) {
  switch (kind) {
    case KT_INT: return 0;
    case KT_UINT: return 1;
    case KT_FLOAT: return 2;
    case KT_BFLOAT: return 4;
    default: return 6;
  }
}

static size_t port_bytes(const kt_plan *plan, const kt_plan_port *port) {
  return (size_t)plan->tensors[port->tensor].nbytes;
}

/* Adds aligned room for a tensor; false where no memory is that large. */
static bool add_room(size_t *total, uint64_t nbytes) {
  if (nbytes > SIZE_MAX / 4 || *total > SIZE_MAX / 4) return false;
  *total += aligned((size_t)nbytes);
  return true;
}

static kt_status lay_out(kt_context *context) {
  const kt_plan *plan = context->plan;
  size_t total = KT_ALIGNMENT;
  bool possible = add_room(&total, plan->header.arena_bytes);
  for (uint32_t i = 0; i < plan->header.input_count; i++)
    possible = possible && add_room(&total, port_bytes(plan, &plan->inputs[i]));
  for (uint32_t i = 0; i < plan->header.output_count; i++)
    possible = possible && add_room(&total, port_bytes(plan, &plan->outputs[i]));
  if (!possible) return kt_fail(KT_ERROR_MEMORY, "no memory for the arena");
  /* pages that are never touched take no memory */
  uint8_t *memory = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return kt_fail(KT_ERROR_MEMORY, "no memory for an arena of %zu bytes", total);
  context->arena = memory;
  context->arena_bytes = total;
  uint8_t *at = memory + aligned((size_t)plan->header.arena_bytes) + KT_ALIGNMENT;
  for (uint32_t i = 0; i < plan->header.input_count; at += aligned(port_bytes(plan, &plan->inputs[i++])))
    context->input_room[i] = at;
  for (uint32_t i = 0; i < plan->header.output_count; at += aligned(port_bytes(plan, &plan->outputs[i++])))
    context->output_room[i] = at;
  return KT_OK;
}

static void place_tensors(kt_context *context) {
  const kt_plan *plan = context->plan;
  context->moving_count = 0;
  for (uint32_t i = 0; i < plan->header.tensor_count; i++) {
    const kt_plan_tensor *tensor = &plan->tensors[i];
    uint8_t *data = NULL;
    switch (tensor->place) {
      case KT_AT_INPUT: data = context->input_room[tensor->offset]; break;
      case KT_AT_OUTPUT: data = context->output_room[tensor->offset]; break;
      case KT_AT_WEIGHTS: data = (uint8_t *)context->model->weights.data + tensor->offset; break;
      default: data = context->arena + tensor->offset;
    }
    if (tensor->place <= KT_AT_OUTPUT) context->moving[context->moving_count++] = i;
    if (tensor->nbytes == 0 || data == NULL) data = context->arena; /* kernels refuse a null pointer */
    context->tensors[i] = (kt_dltensor){.data = data,
                                        .device_type = DL_CPU,
                                        .rank = tensor->rank,
                                        .code = code_of(tensor->kind),
                                        .bits = tensor->bits,
                                        .lanes = 1,
                                        .shape = (int64_t *)plan->extents + tensor->extents};
  }
  for (uint32_t i = 0; i < plan->header.argument_count; i++)
    context->arguments[i] = (kt_any){.type = KT_ANY_TENSOR, .pointer = &context->tensors[plan->arguments[i]]};
}

/* As many threads as the model was tuned for, but no more than cores: to wake others costs time, and gains none. */
static int32_t usual_threads(const kt_plan *plan, bool are_callers) {
  int32_t tuned = plan->header.threads ? (int32_t)plan->header.threads : 1;
  int32_t cores = tuned == 1 || are_callers ? 0 : kt_usable_cores();
  return cores > 0 && cores < tuned ? cores : tuned;
}

kt_status kt_context_create(kt_model *model, int32_t number, const kt_options *options, kt_context **made) {
  if (model == NULL || made == NULL) return kt_fail(KT_ERROR_ARGUMENT, "kt_context_create: a null pointer");
  *made = NULL;
  if (number < 0 || number >= model->count)
    return kt_fail(KT_ERROR_ARGUMENT, "kt_context_create: no plan %d, there are %d", number, model->count);
  if (options != NULL && options->size < sizeof *options)
    return kt_fail(KT_ERROR_ARGUMENT, "kt_context_create: options.size is %u, not sizeof(kt_options)", options->size);
  const kt_plan *plan = &model->plans[number].plan;
  int32_t threads = options == NULL ? 0 : options->threads;
  if (threads < 0 || threads > 4096)
    return kt_fail(KT_ERROR_ARGUMENT, "kt_context_create: %d threads; 0 to 4096 are possible", threads);
  if (threads == 0) threads = usual_threads(plan, options != NULL && options->parallel_for != NULL);
  kt_context *context = calloc(1, sizeof *context);
  if (context == NULL) return kt_fail(KT_ERROR_MEMORY, "no memory for a context");
  const kt_plan_header *header = &plan->header;
  context->open = context->plan = plan;
  context->kernels = model->plans[number].library.kernels;
  context->model = model;
  atomic_fetch_add(&model->references, 1);
  context->input_room = calloc(header->input_count + 1, sizeof *context->input_room);
  context->output_room = calloc(header->output_count + 1, sizeof *context->output_room);
  context->copied = calloc(header->input_count + 1, sizeof *context->copied);
  context->tensors = calloc(header->tensor_count + 1, sizeof *context->tensors);
  context->arguments = calloc(header->argument_count + 1, sizeof *context->arguments);
  context->moving = calloc(header->tensor_count + 1, sizeof *context->moving);
  kt_status status = KT_OK;
  if (!context->input_room || !context->output_room || !context->copied || !context->tensors || !context->arguments ||
      !context->moving)
    status = kt_fail(KT_ERROR_MEMORY, "no memory for a context");
  if (status == KT_OK) status = lay_out(context);
  if (status == KT_OK)
    status = kt_pool_create(threads, options ? options->parallel_for : NULL, options ? options->user : NULL,
                            !(header->flags & KT_KEEPS_DENORMALS), &context->pool);
  if (status != KT_OK) {
    kt_context_close(context);
    return status;
  }
  place_tensors(context);
  *made = context;
  return KT_OK;
}

void kt_context_close(kt_context *context) {
  if (context == NULL) return;
  kt_pool_close(context->pool);
  if (context->arena != NULL) munmap(context->arena, context->arena_bytes);
  free(context->input_room);
  free(context->output_room);
  free(context->copied);
  free(context->tensors);
  free(context->arguments);
  free(context->moving);
  kt_plan_free(&context->shaped);
  kt_model_release(context->model);
  free(context);
}

/* Begins to use the context; false where another thread uses it.  A user from before a fork is ignored: its thread does
 * not exist in this process. */
static bool begin_use(kt_context *context) {
  unsigned before = 0, mine = kt_fork_count() + 1;
  if (atomic_compare_exchange_strong_explicit(&context->user, &before, mine, memory_order_acquire, memory_order_relaxed))
    return true;
  return before != mine && atomic_compare_exchange_strong(&context->user, &before, mine);
}

static void end_use(kt_context *context) { atomic_store_explicit(&context->user, 0, memory_order_release); }

kt_status kt_set_hook(kt_context *context, kt_hook hook, void *user) {
  if (context == NULL) return kt_fail(KT_ERROR_ARGUMENT, "kt_set_hook: a null pointer");
  if (!begin_use(context)) return kt_fail(KT_ERROR_BUSY, "kt_set_hook: the context is running");
  context->hook = hook;
  context->hook_user = user;
  end_use(context);
  return KT_OK;
}

kt_status kt_context_set_shapes(kt_context *context, const kt_shape *shapes, int32_t count) {
  if (context == NULL || (shapes == NULL && count > 0))
    return kt_fail(KT_ERROR_ARGUMENT, "kt_context_set_shapes: a null pointer");
  if (count < 0 || (uint32_t)count != context->plan->header.input_count)
    return kt_fail(KT_ERROR_ARGUMENT, "kt_context_set_shapes: %d shapes given, %u needed", count,
                   context->plan->header.input_count);
  if (!begin_use(context)) return kt_fail(KT_ERROR_BUSY, "kt_context_set_shapes: the context is running");
  kt_plan made;
  kt_status status = kt_plan_shape(context->open, shapes, &made);
  if (status == KT_OK) {
    kt_plan_free(&context->shaped);
    context->shaped = made;
    context->plan = &context->shaped;
    place_tensors(context);
  }
  end_use(context);
  return status;
}

static kt_status describe(const kt_context *context, int32_t place, bool output, kt_tensor *tensor) {
  if (context == NULL || tensor == NULL) return kt_fail(KT_ERROR_ARGUMENT, "kt_context_describe: a null pointer");
  uint32_t count = output ? kt_plan_own_outputs(context->plan) : context->plan->header.input_count;
  if (place < 0 || (uint32_t)place >= count)
    return kt_fail(KT_ERROR_ARGUMENT, "kt_context_describe: no %s %d", output ? "output" : "input", place);
  kt_plan_describe(context->plan, output ? &context->plan->outputs[place] : &context->plan->inputs[place], tensor);
  return KT_OK;
}

kt_status kt_context_describe_input(const kt_context *context, int32_t place, kt_tensor *tensor) {
  return describe(context, place, false, tensor);
}

kt_status kt_context_describe_output(const kt_context *context, int32_t place, kt_tensor *tensor) {
  return describe(context, place, true, tensor);
}

/* ---- the values of indices ---- */

static int64_t integer_at(const void *data, const kt_plan_tensor *tensor, size_t place) {
  bool is_signed = tensor->kind == KT_INT;
  const uint8_t *at = (const uint8_t *)data + place * (tensor->bits / 8u); /* the caller's memory may lie anywhere */
  uint16_t half;
  uint32_t word;
  int64_t whole;
  switch (tensor->bits) {
    case 8: return is_signed ? (int8_t)*at : *at;
    case 16: memcpy(&half, at, sizeof half); return is_signed ? (int16_t)half : half;
    case 32: memcpy(&word, at, sizeof word); return is_signed ? (int32_t)word : (int64_t)word;
    default: memcpy(&whole, at, sizeof whole); return whole;
  }
}

/* Writes the indices of an element, given by its number, such as "[0, 3]". */
static void spell(const kt_plan *plan, const kt_plan_tensor *tensor, size_t place, char *text, size_t size) {
  size_t index[KT_MAX_RANK], used = 0;
  for (int i = tensor->rank - 1; i >= 0; i--) {
    size_t extent = (size_t)plan->extents[tensor->extents + i];
    index[i] = place % extent;
    place /= extent;
  }
  used += (size_t)snprintf(text, size, "[");
  for (int i = 0; i < tensor->rank && used < size; i++)
    used += (size_t)snprintf(text + used, size - used, i ? ", %zu" : "%zu", index[i]);
  if (used < size) snprintf(text + used, size - used, "]");
}

static kt_status check_input(const kt_plan *plan, const kt_plan_port *port, const void *data) {
  const kt_plan_tensor *tensor = &plan->tensors[port->tensor];
  size_t count = (size_t)tensor->nbytes / (tensor->bits / 8u);
  for (size_t i = 0; i < count; i++) {
    int64_t value = integer_at(data, tensor, i);
    if (value >= port->least && value <= port->greatest) continue;
    char where[256], entries[48] = "";
    spell(plan, tensor, i, where, sizeof where);
    if (port->least == 0 || port->least == -port->greatest - 1)
      snprintf(entries, sizeof entries, " (%lld entries)", (long long)port->greatest + 1);
    return kt_fail(KT_ERROR_VALUE, "input '%s' holds %lld at %s, an index that must lie between %lld and %lld%s",
                   plan->text + port->name, (long long)value, where, (long long)port->least, (long long)port->greatest,
                   entries);
  }
  return KT_OK;
}

static kt_status check_computed(const kt_plan *plan, const kt_plan_check *check, const void *data) {
  const kt_plan_tensor *tensor = &plan->tensors[plan->outputs[check->port].tensor];
  size_t count = (size_t)tensor->nbytes / (tensor->bits / 8u);
  for (size_t i = 0; i < count; i++) {
    uint32_t column = check->size_count > 1 ? (uint32_t)(i % check->size_count) : 0;
    int64_t size = plan->sizes[check->sizes + column], value = integer_at(data, tensor, i);
    if (value < size && value >= (check->negative ? -size : 0)) continue;
    return kt_fail(KT_ERROR_VALUE, "%s: the inputs lead to index %lld, which is outside of axis %u with %lld elements",
                   plan->text + check->node, (long long)value, check->axis + column, (long long)size);
  }
  return KT_OK;
}

/* ---- copies ---- */

#define SHARED_COPY ((size_t)1 << 18) /* bytes: less takes one thread no longer than it takes to wake another */

typedef struct {
  uint8_t *to;
  const uint8_t *from;
  size_t nbytes;
} copying;

static int copy_part(int task, kt_group *group, void *data) {
  const copying *all = data;
  size_t part = aligned((all->nbytes + (size_t)group->tasks - 1) / (size_t)group->tasks), start = part * (size_t)task;
  if (start < all->nbytes)
    memcpy(all->to + start, all->from + start, all->nbytes - start < part ? all->nbytes - start : part);
  return 0;
}

/* Copies, with all threads of the pool if the copy is large.  The pool must have been entered. */
static void copy(kt_context *context, void *to, const void *from, size_t nbytes) {
  if (nbytes < SHARED_COPY) {
    if (nbytes) memcpy(to, from, nbytes);
    return;
  }
  copying all = {to, from, nbytes};
  kt_pool_limit(context->pool, 0);
  kt_parallel_launch(copy_part, &all, 0);
}

/* ---- a run ---- */

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static bool is_zero(const kt_context *context, uint32_t number) {
  const kt_plan_tensor *tensor = &context->plan->tensors[number];
  const uint8_t *data = context->tensors[number].data;
  for (int i = 0; i < tensor->bits / 8; i++)
    if (data[i] != 0) return false;
  return true;
}

static kt_status run_plan(kt_context *context) {
  const kt_plan *plan = context->plan;
  for (uint32_t place = 0; place < plan->header.operation_count;) {
    const kt_plan_operation *operation = &plan->operations[place];
    uint32_t next = place + 1;
    switch (operation->opcode) {
      case KT_CALL: {
        kt_any result = {.type = KT_ANY_NONE};
        kt_pool_limit(context->pool, (int32_t)operation->threads);
        int64_t start = context->hook ? now() : 0;
        int failed = context->kernels[operation->subject](NULL, &context->arguments[operation->arguments],
                                                          (int32_t)operation->count, &result);
        const char *name = plan->text + plan->kernels[operation->subject];
        if (failed) {
          const char *title = plan->text + operation->title;
          kt_status status = *title != '\0' ? kt_fail(KT_ERROR_KERNEL, "%.500s: %s", title, kt_kernel_message())
                                            : kt_fail(KT_ERROR_KERNEL, "kernel %s: %s", name, kt_kernel_message());
          kt_kernel_forget();
          return status;
        }
        if (context->hook) context->hook(context->hook_user, name, (int32_t)place, now() - start);
        break;
      }
      case KT_COPY:
        copy(context, context->tensors[operation->arguments].data, context->tensors[operation->subject].data,
             (size_t)plan->tensors[operation->subject].nbytes);
        break;
      case KT_BRANCH:
        if (is_zero(context, operation->subject)) next = operation->arguments;
        break;
      default: next = operation->arguments;
    }
    place = next;
  }
  return KT_OK;
}

static bool overlap(const kt_buffer *one, const kt_buffer *other) {
  const uint8_t *a = one->data, *b = other->data;
  return one->nbytes && other->nbytes && a < b + other->nbytes && b < a + one->nbytes;
}

static kt_status check_buffers(const kt_context *context, const kt_buffer *inputs, int32_t input_count,
                               const kt_buffer *outputs, int32_t output_count) {
  const kt_plan *plan = context->plan;
  uint32_t own = kt_plan_own_outputs(plan);
  if (input_count < 0 || (uint32_t)input_count != plan->header.input_count || output_count < 0 || (uint32_t)output_count != own)
    return kt_fail(KT_ERROR_ARGUMENT, "%d inputs and %d outputs given, %u and %u needed", input_count, output_count,
                   plan->header.input_count, own);
  if ((input_count > 0 && inputs == NULL) || (output_count > 0 && outputs == NULL))
    return kt_fail(KT_ERROR_ARGUMENT, "kt_run: a null pointer");
  for (uint32_t i = 0; i < plan->header.input_count + own; i++) {
    bool output = i >= plan->header.input_count;
    const kt_plan_port *port = output ? &plan->outputs[i - plan->header.input_count] : &plan->inputs[i];
    const kt_buffer *given = output ? &outputs[i - plan->header.input_count] : &inputs[i];
    const char *what = output ? "output" : "input";
    size_t wanted = port_bytes(plan, port);
    if (given->nbytes != wanted)
      return kt_fail(KT_ERROR_ARGUMENT, "%s '%s' has %zu bytes, %zu are needed", what, plan->text + port->name,
                     given->nbytes, wanted);
    if (given->data == NULL && wanted != 0)
      return kt_fail(KT_ERROR_ARGUMENT, "%s '%s' is a null pointer", what, plan->text + port->name);
  }
  for (uint32_t i = 1; i < own; i++)
    for (uint32_t j = 0; j < i; j++)
      if (overlap(&outputs[i], &outputs[j]))
        return kt_fail(KT_ERROR_ARGUMENT, "outputs '%s' and '%s' share memory", plan->text + plan->outputs[j].name,
                       plan->text + plan->outputs[i].name);
  return KT_OK;
}

static bool is_aligned(const void *data) { return data != NULL && (uintptr_t)data % KT_ALIGNMENT == 0; }

/* Whether a run must read a copy of an input: kernels need it aligned, and an output that overlaps it may be written
 * before the input is read. */
static bool must_copy(const kt_buffer *input, const kt_buffer *outputs, uint32_t count) {
  if (!is_aligned(input->data)) return true;
  for (uint32_t i = 0; i < count; i++)
    if (overlap(input, &outputs[i])) return true;
  return false;
}

static kt_status run(kt_context *context, const kt_buffer *inputs, const kt_buffer *outputs) {
  const kt_plan *plan = context->plan;
  uint32_t own = kt_plan_own_outputs(plan);
  for (uint32_t i = 0; i < plan->header.input_count; i++) context->copied[i] = must_copy(&inputs[i], outputs, own);
  for (uint32_t i = 0; i < plan->header.input_count; i++) {
    if (plan->inputs[i].bounded) {
      kt_status status = check_input(plan, &plan->inputs[i], inputs[i].data);
      if (status != KT_OK) return status;
    }
  }
  for (uint32_t i = 0; i < context->moving_count; i++) {
    const kt_plan_tensor *tensor = &plan->tensors[context->moving[i]];
    if (tensor->nbytes == 0) continue;
    bool output = tensor->place == KT_AT_OUTPUT;
    if (output && tensor->offset >= own) continue; /* checked indices stay */
    void *given = output ? outputs[tensor->offset].data : inputs[tensor->offset].data;
    uint8_t *room = output ? context->output_room[tensor->offset] : context->input_room[tensor->offset];
    bool in_place = output ? is_aligned(given) : !context->copied[tensor->offset];
    context->tensors[context->moving[i]].data = in_place ? given : room;
  }
  kt_status status = kt_pool_enter(context->pool);
  if (status != KT_OK) return status;
  for (uint32_t i = 0; i < plan->header.input_count; i++)
    if (context->copied[i]) copy(context, context->input_room[i], inputs[i].data, inputs[i].nbytes);
  status = run_plan(context);
  for (uint32_t i = 0; i < plan->header.check_count && status == KT_OK; i++)
    status = check_computed(plan, &plan->checks[i], context->output_room[plan->checks[i].port]);
  for (uint32_t i = 0; i < own && status == KT_OK; i++)
    if (!is_aligned(outputs[i].data)) copy(context, outputs[i].data, context->output_room[i], outputs[i].nbytes);
  kt_pool_leave(context->pool);
  return status;
}

kt_status kt_run(kt_context *context, const kt_buffer *inputs, int32_t input_count, const kt_buffer *outputs,
                 int32_t output_count) {
  if (context == NULL) return kt_fail(KT_ERROR_ARGUMENT, "kt_run: a null pointer");
  kt_status status = check_buffers(context, inputs, input_count, outputs, output_count);
  if (status != KT_OK) return status;
  if (!begin_use(context))
    return kt_fail(KT_ERROR_BUSY, "the context is running in another thread; make a context for each");
  kt_stamp stamp;
  status = kt_model_check(context->model, &stamp);
  if (status == KT_OK) {
    status = run(context, inputs, outputs);
    kt_status again = kt_model_check_again(context->model, stamp); /* what was read may be of another model */
    if (again != KT_OK) status = again;
  }
  end_use(context);
  return status;
}
