/* Custom operators of onnxruntime, each of which runs one opened network; onnx_registration.c registers them. */
#define _GNU_SOURCE
#include "onnx_interface.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* onnxruntime's number of an element type; 0 if it has none. */
static int onnx_type(const kt_tensor *tensor) {
  int log = tensor->bits == 8 ? 0 : tensor->bits == 16 ? 1 : tensor->bits == 32 ? 2 : tensor->bits == 64 ? 3 : -1;
  static const int floats[] = {0, 10, 1, 11}, ints[] = {3, 5, 6, 7}, uints[] = {2, 4, 12, 13};
  if (log < 0) return 0;
  switch (tensor->kind) {
    case KT_FLOAT: return floats[log];
    case KT_INT: return ints[log];
    case KT_UINT: return uints[log];
    case KT_BFLOAT: return log == 1 ? 16 : 0;
    default: return log == 0 ? 9 : 0;
  }
}

/* ---- the network of an operator ---- */

kt_status kt_network_describe(kt_network *network) {
  const kt_model *model = network->model;
  network->plan_count = kt_plan_count(model);
  network->input_count = kt_input_count(model);
  network->output_count = kt_output_count(model);
  int32_t ends = network->input_count + network->output_count;
  network->tensors = calloc((size_t)network->plan_count * (size_t)ends + 1, sizeof *network->tensors);
  if (network->tensors == NULL) return kt_fail(KT_ERROR_MEMORY, "no memory for an operator");
  for (int32_t plan = 0; plan < network->plan_count; plan++) {
    for (int32_t i = 0; i < ends; i++) {
      kt_tensor *tensor = &network->tensors[plan * ends + i];
      kt_status status = i < network->input_count ? kt_describe_input(model, plan, i, tensor)
                                                  : kt_describe_output(model, plan, i - network->input_count, tensor);
      if (status != KT_OK) return status;
      if (onnx_type(tensor) == 0)
        return kt_fail(KT_ERROR_FORMAT, "'%.200s' has a type that onnxruntime does not have", tensor->name);
    }
  }
  return KT_OK;
}

void kt_network_close(kt_network *network) {
  free(network->tensors);
  kt_close(network->model);
  *network = (kt_network){.model = NULL};
}

static const kt_tensor *inputs_of(const kt_network *network, int32_t plan) {
  return network->tensors + (size_t)plan * (size_t)(network->input_count + network->output_count);
}

static const kt_tensor *outputs_of(const kt_network *network, int32_t plan) {
  return inputs_of(network, plan) + network->input_count;
}

/* ---- a kernel: the operator in one session ---- */

typedef struct {
  int64_t extents[KT_MAX_RANK];
} extents;

/* A plan: its context, NULL before the first run, and its inputs and outputs for the shapes that this was given last;
 * NULL where it was given none, so that they are those of the network. */
typedef struct {
  kt_context *context;
  kt_tensor *now;
} planned;

/* The state of one run at a time: contexts of the runtime, and the descriptions of inputs and outputs. */
typedef struct runner {
  ort_api api;
  ort_kernel_context *current; /* that of the run */
  ort_status *failure;         /* of onnxruntime's threads */
  struct runner *next;
  kt_buffer *inputs;
  kt_buffer *outputs;
  kt_buffer *late; /* outputs that are copied to onnxruntime's after the run */
  kt_shape *shapes;
  extents *memory; /* of the shapes */
  planned plans[];
} runner;

typedef struct {
  const kt_network *network;
  ort_api api;
  uint32_t version;
  _Atomic(runner *) spare; /* that of the last run; the usual case takes no lock */
  pthread_mutex_t lock;
  runner *idle; /* others that no run uses; more are made when there is none */
} kernel;

typedef struct {
  kt_part part;
  void *data;
} work;

static void run_part(void *data, size_t index) {
  const work *own = data;
  own->part(own->data, (int32_t)index);
}

/* A `kt_parallel_for` on the session's threads. */
static void parallel_for(void *user, kt_part part, void *part_data, int32_t count) {
  runner *own = user;
  work all = {part, part_data};
  ort_status *status =
      ((ort_status * (*)(const ort_kernel_context *, void (*)(void *, size_t), size_t, size_t, void *))
           own->api[PARALLEL_FOR])(own->current, run_part, (size_t)count, 0, &all);
  if (status == NULL) return;
  if (own->failure != NULL) release_status(own->api, own->failure);
  own->failure = status;
}

static void free_runner(runner *of, int32_t plan_count) {
  if (of == NULL) return;
  for (int32_t plan = 0; plan < plan_count; plan++) {
    kt_context_close(of->plans[plan].context);
    free(of->plans[plan].now);
  }
  free(of->inputs);
  free(of->shapes);
  free(of->memory);
  free(of);
}

static runner *make_runner(const kernel *of) {
  const kt_network *network = of->network;
  size_t inputs = (size_t)network->input_count, outputs = (size_t)network->output_count;
  runner *made = calloc(1, sizeof *made + (size_t)network->plan_count * sizeof *made->plans);
  if (made == NULL) return NULL;
  made->api = of->api;
  made->inputs = calloc(inputs + 2 * outputs + 1, sizeof *made->inputs);
  made->shapes = calloc(inputs + 1, sizeof *made->shapes);
  made->memory = calloc(inputs + 1, sizeof *made->memory);
  if (made->inputs == NULL || made->shapes == NULL || made->memory == NULL) {
    free_runner(made, 0);
    return NULL;
  }
  made->outputs = made->inputs + inputs;
  made->late = made->outputs + outputs;
  return made;
}

/* A runner that belongs to the caller until `give_back`; NULL where no memory is left. */
static runner *take(kernel *of) {
  runner *found = atomic_exchange_explicit(&of->spare, NULL, memory_order_acquire);
  if (found != NULL) return found;
  pthread_mutex_lock(&of->lock);
  found = of->idle;
  if (found != NULL) of->idle = found->next;
  pthread_mutex_unlock(&of->lock);
  return found != NULL ? found : make_runner(of);
}

static void give_back(kernel *of, runner *taken) {
  runner *none = NULL;
  if (atomic_compare_exchange_strong_explicit(&of->spare, &none, taken, memory_order_release, memory_order_relaxed))
    return;
  pthread_mutex_lock(&of->lock);
  taken->next = of->idle;
  of->idle = taken;
  pthread_mutex_unlock(&of->lock);
}

static kt_status context_of(const kernel *of, runner *taken, int32_t plan) {
  if (taken->plans[plan].context != NULL) return KT_OK;
  kt_options options = {.size = sizeof options, .user = taken};
  if (of->version >= API_PARALLEL_FOR) options.parallel_for = parallel_for;
  return kt_context_create(of->network->model, plan, &options, &taken->plans[plan].context);
}

static ort_status *create_kernel_2(const ort_custom_op *op, ort_api api, const void *info, void **made) {
  (void)info;
  const kt_operator *of = (const kt_operator *)op;
  kernel *own = calloc(1, sizeof *own);
  if (own == NULL) return make_status(api, ORT_FAIL, "no memory for a kernel");
  own->network = of->network;
  own->api = of->api;
  own->version = of->version;
  pthread_mutex_init(&own->lock, NULL);
  *made = own;
  return NULL;
}

static void *create_kernel(const ort_custom_op *op, ort_api api, const void *info) {
  void *made = NULL;
  ort_status *status = create_kernel_2(op, api, info, &made);
  if (status != NULL) release_status(api, status);
  return made;
}

static void destroy_kernel(void *given) {
  kernel *own = given;
  if (own == NULL) return;
  int32_t plans = own->network->plan_count;
  free_runner(atomic_load(&own->spare), plans);
  for (runner *each = own->idle, *next; each != NULL; each = next) {
    next = each->next;
    free_runner(each, plans);
  }
  pthread_mutex_destroy(&own->lock);
  free(own);
}

/* ---- a run ---- */

static ort_status *get_input(ort_api api, const kernel *own, runner *taken, int32_t place) {
  const ort_value *value = NULL;
  ort_shape *info = NULL;
  size_t rank = 0;
  ort_status *status = ((ort_status * (*)(const ort_kernel_context *, size_t, const ort_value **))
                            api[GET_INPUT])(taken->current, (size_t)place, &value);
  if (status != NULL) return status;
  if (value == NULL) return make_status(api, ORT_INVALID_ARGUMENT, "an input is missing");
  status = ((ort_status * (*)(const ort_value *, void **)) api[TENSOR_DATA])(value, &taken->inputs[place].data);
  if (status != NULL) return status;
  status = ((ort_status * (*)(const ort_value *, ort_shape **)) api[TENSOR_SHAPE])(value, &info);
  if (status != NULL) return status;
  status = ((ort_status * (*)(const ort_shape *, size_t *)) api[DIMENSIONS_COUNT])(info, &rank);
  int64_t *extents = taken->memory[place].extents;
  if (status == NULL && rank <= KT_MAX_RANK)
    status = ((ort_status * (*)(const ort_shape *, int64_t *, size_t)) api[DIMENSIONS])(info, extents, rank);
  ((void (*)(ort_shape *))api[RELEASE_SHAPE])(info);
  if (status == NULL && rank > KT_MAX_RANK) {
    const kt_tensor *tensor = &inputs_of(own->network, 0)[place];
    return runtime_error(api, kt_fail(KT_ERROR_ARGUMENT, "input '%.200s' has %zu axes, %d are needed", tensor->name, rank,
                                      tensor->rank));
  }
  taken->shapes[place] = (kt_shape){extents, (int32_t)rank};
  return status;
}

/* Whether the shapes are those of these inputs. */
static bool fits(const kt_tensor *tensors, int32_t count, const kt_shape *shapes) {
  for (int32_t i = 0; i < count; i++) {
    if (shapes[i].rank != tensors[i].rank) return false;
    for (int32_t axis = 0; axis < shapes[i].rank; axis++)
      if (shapes[i].extents[axis] != tensors[i].shape[axis]) return false;
  }
  return true;
}

static kt_status find_plan(const kt_network *network, const kt_shape *shapes, int32_t *plan) {
  for (*plan = 0; *plan < network->plan_count; ++*plan)
    if (fits(inputs_of(network, *plan), network->input_count, shapes)) return KT_OK;
  return kt_find_plan(network->model, shapes, network->input_count, plan); /* it says which there are */
}

/* Finds the inputs of a plan, and behind them its outputs, for the shapes at hand; its context has these afterwards. */
static kt_status shape_plan(const kt_network *network, runner *taken, int32_t number, const kt_tensor **ends) {
  planned *plan = &taken->plans[number];
  int32_t inputs = network->input_count, outputs = network->output_count;
  *ends = plan->now != NULL ? plan->now : inputs_of(network, number);
  if (fits(*ends, inputs, taken->shapes)) return KT_OK;
  kt_tensor *now = plan->now != NULL ? plan->now : calloc((size_t)(inputs + outputs), sizeof *now);
  if (now == NULL) return kt_fail(KT_ERROR_MEMORY, "no memory for the shapes of an operator");
  kt_status status = kt_context_set_shapes(plan->context, taken->shapes, inputs);
  if (status != KT_OK && plan->now == NULL) free(now);
  if (status != KT_OK) return status; /* the shapes are those of before */
  plan->now = now;
  *ends = now;
  for (int32_t i = 0; status == KT_OK && i < inputs; i++) status = kt_context_describe_input(plan->context, i, &now[i]);
  for (int32_t i = 0; status == KT_OK && i < outputs; i++)
    status = kt_context_describe_output(plan->context, i, &now[inputs + i]);
  return status;
}

static ort_status *get_output(ort_api api, ort_kernel_context *context, const kt_tensor *tensor, int32_t place,
                              kt_buffer *buffer) {
  ort_value *value = NULL;
  buffer->nbytes = tensor->nbytes;
  ort_status *status = ((ort_status * (*)(ort_kernel_context *, size_t, const int64_t *, size_t, ort_value **))
                            api[GET_OUTPUT])(context, (size_t)place, tensor->shape, (size_t)tensor->rank, &value);
  if (status != NULL) return status;
  return ((ort_status * (*)(ort_value *, void **)) api[TENSOR_DATA])(value, &buffer->data);
}

/* Makes the outputs: those of onnxruntime, or `late` ones beside them. */
static ort_status *make_outputs(const kernel *own, runner *taken, const kt_tensor *tensors, bool beside) {
  for (int32_t i = 0; i < own->network->output_count; i++) {
    if (!beside) {
      ort_status *status = get_output(own->api, taken->current, &tensors[i], i, &taken->outputs[i]);
      if (status != NULL) return status;
      continue;
    }
    taken->late[i].nbytes = tensors[i].nbytes;
    if (posix_memalign(&taken->late[i].data, KT_ALIGNMENT, tensors[i].nbytes + 1) != 0) {
      taken->late[i].data = NULL;
      return make_status(own->api, ORT_FAIL, "no memory for the outputs");
    }
  }
  return NULL;
}

/* With `beside`, the outputs of onnxruntime are made only after a run without errors. */
static ort_status *run_with(const kernel *own, runner *taken, bool beside) {
  const kt_network *network = own->network;
  ort_api api = own->api;
  ort_status *status = NULL;
  int32_t plan = 0;
  for (int32_t i = 0; i < network->input_count; i++)
    if ((status = get_input(api, own, taken, i)) != NULL) return status;
  kt_status failed = find_plan(network, taken->shapes, &plan);
  const kt_tensor *ends = NULL;
  if (failed == KT_OK) failed = context_of(own, taken, plan);
  if (failed == KT_OK) failed = shape_plan(network, taken, plan, &ends);
  if (failed != KT_OK) return runtime_error(api, failed);
  const kt_tensor *outputs = ends + network->input_count;
  for (int32_t i = 0; i < network->input_count; i++) taken->inputs[i].nbytes = ends[i].nbytes;
  if ((status = make_outputs(own, taken, outputs, beside)) != NULL) return status;
  failed = kt_run(taken->plans[plan].context, taken->inputs, network->input_count, beside ? taken->late : taken->outputs,
                  network->output_count);
  if (failed != KT_OK) status = runtime_error(api, failed);
  if (taken->failure != NULL) {
    if (status != NULL) release_status(api, status);
    status = taken->failure;
    taken->failure = NULL;
  }
  for (int32_t i = 0; beside && i < network->output_count && status == NULL; i++) {
    kt_buffer *output = &taken->outputs[i];
    status = get_output(api, taken->current, &outputs[i], i, output);
    if (status == NULL && output->nbytes) memcpy(output->data, taken->late[i].data, output->nbytes);
  }
  return status;
}

static ort_status *run(kernel *own, ort_kernel_context *context, bool beside) {
  runner *taken = take(own);
  if (taken == NULL) return make_status(own->api, ORT_FAIL, "no memory for a run");
  taken->current = context;
  ort_status *status = run_with(own, taken, beside);
  taken->current = NULL;
  for (int32_t i = 0; beside && i < own->network->output_count; i++) {
    free(taken->late[i].data);
    taken->late[i].data = NULL;
  }
  give_back(own, taken);
  return status;
}

static ort_status *compute_2(void *given, ort_kernel_context *context) { return run(given, context, false); }

/* For onnxruntime before 1.17, to which an operator cannot return an error.  The error is printed, and the outputs are
 * left out: the caller gets no tensor (None in Python), not one with wrong numbers; a node that reads it fails. */
static void compute(void *given, ort_kernel_context *context) {
  kernel *own = given;
  if (own == NULL) return;
  ort_status *status = run(own, context, true);
  if (status == NULL) return;
  const char *name = own->network->is_region ? own->network->name : "", *separator = *name ? ": " : "";
  const char *text = ((const char *(*)(const ort_status *))own->api[ERROR_TEXT])(status);
  fprintf(stderr, "kintune: %s%s%s\n", name, separator, text);
  release_status(own->api, status);
}

/* ---- the description of the operator ---- */

static const kt_network *network_of(const ort_custom_op *op) { return ((const kt_operator *)op)->network; }

static int input_type(const ort_custom_op *op, size_t index) {
  const kt_network *of = network_of(op);
  return index < (size_t)of->input_count ? onnx_type(&inputs_of(of, 0)[index]) : 0;
}

static int output_type(const ort_custom_op *op, size_t index) {
  const kt_network *of = network_of(op);
  return index < (size_t)of->output_count ? onnx_type(&outputs_of(of, 0)[index]) : 0;
}

static size_t input_count(const ort_custom_op *op) { return (size_t)network_of(op)->input_count; }
static size_t output_count(const ort_custom_op *op) { return (size_t)network_of(op)->output_count; }
static const char *op_name(const ort_custom_op *op) { return network_of(op)->name; }
static const char *provider(const ort_custom_op *op) { return (void)op, NULL; /* the CPU */ }
static int required(const ort_custom_op *op, size_t index) { return (void)op, (void)index, 0; }
static int default_memory(const ort_custom_op *op, size_t index) { return (void)op, (void)index, 0; }
static int one(const ort_custom_op *op) { return (void)op, 1; }

static const ort_custom_op description = {
    .create_kernel = create_kernel,
    .name = op_name,
    .provider = provider,
    .input_type = input_type,
    .input_count = input_count,
    .output_type = output_type,
    .output_count = output_count,
    .compute = compute,
    .destroy = destroy_kernel,
    .input_characteristic = required,
    .output_characteristic = required,
    .input_memory_type = default_memory,
    .variadic_input_arity = one,
    .variadic_input_homogeneity = one,
    .variadic_output_arity = one,
    .variadic_output_homogeneity = one,
    .create_kernel_2 = create_kernel_2,
    .compute_2 = compute_2,
};

void kt_operator_make(kt_operator *made, ort_api api, uint32_t version, const kt_network *network) {
  *made = (kt_operator){.op = description, .api = api, .version = version, .network = network};
  made->op.version = version < API_RETURNS_ERRORS ? version : API_RETURNS_ERRORS;
}
