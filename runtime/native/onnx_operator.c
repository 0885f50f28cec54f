/* A custom operator of onnxruntime that runs `model.kt`, the file beside this library.
 *
 * onnxruntime loads the library, and calls `RegisterCustomOps`.  No header of onnxruntime is used: its interface in C
 * is a table of functions, and a table that describes an operator.  New versions only append to them.
 *
 * The library is not a part of libkintune.so; it has all of the runtime itself. */
#define _GNU_SOURCE
#include "internal.h"

#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the interface of onnxruntime ---- */

typedef struct ort_status ort_status; /* NULL: no error */
typedef struct ort_options ort_options;
typedef struct ort_domain ort_domain;
typedef struct ort_value ort_value;
typedef struct ort_shape ort_shape;
typedef struct ort_kernel_context ort_kernel_context;
typedef struct ort_custom_op ort_custom_op;
typedef void (*const *ort_api)(void);

typedef struct {
  ort_api (*get_api)(uint32_t version);
  const char *(*get_version)(void);
} ort_api_base;

/* Places in the table of functions. */
enum {
  CREATE_STATUS = 0,
  ERROR_TEXT = 2,
  CREATE_DOMAIN = 26,
  DOMAIN_ADD = 27,
  ADD_DOMAIN = 28,
  TENSOR_DATA = 51,
  DIMENSIONS_COUNT = 61,
  DIMENSIONS = 62,
  TENSOR_SHAPE = 65,
  GET_INPUT = 90,
  GET_OUTPUT = 91,
  RELEASE_STATUS = 93,
  RELEASE_SHAPE = 99,
  RELEASE_DOMAIN = 101,
  PARALLEL_FOR = 274, /* since 17 */
};

/* Versions of the interface: that of onnxruntime 1.N is N. */
enum {
  API_RETURNS_ERRORS = 16, /* the version of an operator that may return errors; 1.17 is the first that asks it */
  API_PARALLEL_FOR = 17,   /* the newest that is used here */
};

enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2 };

struct ort_custom_op {
  uint32_t version;
  void *(*create_kernel)(const ort_custom_op *op, ort_api api, const void *info);
  const char *(*name)(const ort_custom_op *op);
  const char *(*provider)(const ort_custom_op *op);
  int (*input_type)(const ort_custom_op *op, size_t index);
  size_t (*input_count)(const ort_custom_op *op);
  int (*output_type)(const ort_custom_op *op, size_t index);
  size_t (*output_count)(const ort_custom_op *op);
  void (*compute)(void *kernel, ort_kernel_context *context);
  void (*destroy)(void *kernel);
  int (*input_characteristic)(const ort_custom_op *op, size_t index);
  int (*output_characteristic)(const ort_custom_op *op, size_t index);
  int (*input_memory_type)(const ort_custom_op *op, size_t index);
  int (*variadic_input_arity)(const ort_custom_op *op);
  int (*variadic_input_homogeneity)(const ort_custom_op *op);
  int (*variadic_output_arity)(const ort_custom_op *op);
  int (*variadic_output_homogeneity)(const ort_custom_op *op);
  ort_status *(*create_kernel_2)(const ort_custom_op *op, ort_api api, const void *info, void **kernel);
  ort_status *(*compute_2)(void *kernel, ort_kernel_context *context);
  void (*later[7])(void); /* read where `version` is above 16 */
};

static ort_status *make_status(ort_api api, int code, const char *text) {
  return ((ort_status * (*)(int, const char *)) api[CREATE_STATUS])(code, text);
}

static void release_status(ort_api api, ort_status *status) { ((void (*)(ort_status *))api[RELEASE_STATUS])(status); }

/* The status for the last failure of the runtime. */
static ort_status *runtime_error(ort_api api, kt_status status) {
  bool given = status == KT_ERROR_ARGUMENT || status == KT_ERROR_VALUE;
  return make_status(api, given ? ORT_INVALID_ARGUMENT : ORT_FAIL, kt_last_error());
}

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

/* ---- what is registered ---- */

/* One for each copy of onnxruntime in the process.  The operator is first: onnxruntime hands its address back. */
typedef struct registration {
  ort_custom_op op;
  ort_api api;
  uint32_t version;
  ort_domain *domain;
  struct registration *next;
} registration;

static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;
static registration *registrations;
static kt_model *model; /* opened at the first registration, closed when the library is unloaded */
static char domain_name[] = "kintune.0123456789abcdef";

/* ---- a kernel: the operator in one session ---- */

/* A context of the runtime, used by one run at a time. */
typedef struct runner {
  kt_context *context;
  ort_api api;
  ort_kernel_context *current; /* that of the run */
  ort_status *failure;         /* of onnxruntime's threads */
  struct runner *next;
} runner;

typedef struct {
  ort_api api;
  uint32_t version;
  pthread_mutex_t lock;
  runner *idle[]; /* the contexts of each plan that no run uses; more are made when there is none */
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

/* A context of the plan that belongs to the caller until `give_back`. */
static kt_status take(kernel *of, int32_t plan, runner **taken) {
  pthread_mutex_lock(&of->lock);
  runner *found = of->idle[plan];
  if (found != NULL) of->idle[plan] = found->next;
  pthread_mutex_unlock(&of->lock);
  *taken = found;
  if (found != NULL) return KT_OK;
  runner *made = calloc(1, sizeof *made);
  if (made == NULL) return kt_fail(KT_ERROR_MEMORY, "no memory for a context");
  made->api = of->api;
  kt_options options = {.size = sizeof options, .user = made};
  if (of->version >= API_PARALLEL_FOR) options.parallel_for = parallel_for;
  kt_status status = kt_context_create(model, plan, &options, &made->context);
  if (status != KT_OK) free(made);
  else *taken = made;
  return status;
}

static void give_back(kernel *of, int32_t plan, runner *taken) {
  pthread_mutex_lock(&of->lock);
  taken->next = of->idle[plan];
  of->idle[plan] = taken;
  pthread_mutex_unlock(&of->lock);
}

static ort_status *create_kernel_2(const ort_custom_op *op, ort_api api, const void *info, void **made) {
  (void)info;
  size_t plans = (size_t)kt_plan_count(model);
  kernel *own = calloc(1, sizeof *own + plans * sizeof *own->idle);
  if (own == NULL) return make_status(api, ORT_FAIL, "no memory for a kernel");
  own->api = ((const registration *)op)->api;
  own->version = ((const registration *)op)->version;
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
  for (int32_t plan = 0; plan < kt_plan_count(model); plan++) {
    for (runner *each = own->idle[plan], *next; each != NULL; each = next) {
      next = each->next;
      kt_context_close(each->context);
      free(each);
    }
  }
  pthread_mutex_destroy(&own->lock);
  free(own);
}

/* ---- a run ---- */

typedef struct {
  int64_t extents[KT_MAX_RANK];
} extents;

static ort_status *get_input(ort_api api, ort_kernel_context *context, int32_t place, kt_buffer *buffer, extents *memory,
                             kt_shape *found) {
  const ort_value *value = NULL;
  ort_shape *info = NULL;
  size_t rank = 0;
  ort_status *status = ((ort_status * (*)(const ort_kernel_context *, size_t, const ort_value **))
                            api[GET_INPUT])(context, (size_t)place, &value);
  if (status != NULL) return status;
  if (value == NULL) return make_status(api, ORT_INVALID_ARGUMENT, "an input is missing");
  status = ((ort_status * (*)(const ort_value *, void **)) api[TENSOR_DATA])(value, &buffer->data);
  if (status != NULL) return status;
  status = ((ort_status * (*)(const ort_value *, ort_shape **)) api[TENSOR_SHAPE])(value, &info);
  if (status != NULL) return status;
  status = ((ort_status * (*)(const ort_shape *, size_t *)) api[DIMENSIONS_COUNT])(info, &rank);
  if (status == NULL && rank <= KT_MAX_RANK)
    status = ((ort_status * (*)(const ort_shape *, int64_t *, size_t)) api[DIMENSIONS])(info, memory->extents, rank);
  ((void (*)(ort_shape *))api[RELEASE_SHAPE])(info);
  kt_tensor tensor;
  if (status == NULL && rank > KT_MAX_RANK && kt_describe_input(model, 0, place, &tensor) == KT_OK)
    return runtime_error(api, kt_fail(KT_ERROR_ARGUMENT, "input '%.200s' has %zu axes, %d are needed", tensor.name, rank,
                                      tensor.rank));
  *found = (kt_shape){memory->extents, (int32_t)rank};
  return status;
}

static ort_status *get_output(ort_api api, ort_kernel_context *context, int32_t plan, int32_t place,
                              kt_buffer *buffer) {
  kt_tensor tensor;
  ort_value *value = NULL;
  kt_status failed = kt_describe_output(model, plan, place, &tensor);
  if (failed != KT_OK) return runtime_error(api, failed);
  buffer->nbytes = tensor.nbytes;
  ort_status *status = ((ort_status * (*)(ort_kernel_context *, size_t, const int64_t *, size_t, ort_value **))
                            api[GET_OUTPUT])(context, (size_t)place, tensor.shape, (size_t)tensor.rank, &value);
  if (status != NULL) return status;
  return ((ort_status * (*)(ort_value *, void **)) api[TENSOR_DATA])(value, &buffer->data);
}

/* Runs on buffers for all inputs and outputs; `late` ones are of this function and are copied to the outputs. */
static ort_status *run_with(kernel *own, ort_kernel_context *context, kt_buffer *inputs, kt_buffer *outputs,
                            extents *memory, kt_shape *shapes, kt_buffer *late) {
  ort_api api = own->api;
  ort_status *status = NULL;
  runner *taken = NULL;
  int32_t plan, input_count = kt_input_count(model), output_count = kt_output_count(model);
  for (int32_t i = 0; i < input_count; i++)
    if ((status = get_input(api, context, i, &inputs[i], &memory[i], &shapes[i])) != NULL) return status;
  kt_status failed = kt_find_plan(model, shapes, input_count, &plan);
  if (failed != KT_OK) return runtime_error(api, failed);
  for (int32_t i = 0; i < input_count; i++) {
    kt_tensor tensor;
    if ((failed = kt_describe_input(model, plan, i, &tensor)) != KT_OK) return runtime_error(api, failed);
    inputs[i].nbytes = tensor.nbytes;
  }
  for (int32_t i = 0; i < output_count; i++) {
    if (late == NULL) {
      if ((status = get_output(api, context, plan, i, &outputs[i])) != NULL) return status;
      continue;
    }
    kt_tensor tensor;
    if ((failed = kt_describe_output(model, plan, i, &tensor)) != KT_OK) return runtime_error(api, failed);
    late[i].nbytes = tensor.nbytes;
    if (posix_memalign(&late[i].data, KT_ALIGNMENT, tensor.nbytes + 1) != 0) {
      late[i].data = NULL;
      return make_status(api, ORT_FAIL, "no memory for the outputs");
    }
  }
  if ((failed = take(own, plan, &taken)) != KT_OK) return runtime_error(api, failed);
  taken->current = context;
  failed = kt_run(taken->context, inputs, input_count, late ? late : outputs, output_count);
  if (failed != KT_OK) status = runtime_error(api, failed);
  if (taken->failure != NULL) {
    if (status != NULL) release_status(api, status);
    status = taken->failure;
  }
  taken->failure = NULL;
  taken->current = NULL;
  give_back(own, plan, taken);
  for (int32_t i = 0; late != NULL && i < output_count && status == NULL; i++) {
    status = get_output(api, context, plan, i, &outputs[i]);
    if (status == NULL && outputs[i].nbytes) memcpy(outputs[i].data, late[i].data, outputs[i].nbytes);
  }
  return status;
}

/* `beside`: the outputs are made only after a run without errors. */
static ort_status *run(kernel *own, ort_kernel_context *context, bool beside) {
  size_t inputs = (size_t)kt_input_count(model), outputs = (size_t)kt_output_count(model);
  kt_buffer *buffers = calloc(inputs + 2 * outputs + 1, sizeof *buffers);
  extents *memory = calloc(inputs + 1, sizeof *memory);
  kt_shape *shapes = calloc(inputs + 1, sizeof *shapes);
  ort_status *status = NULL;
  if (buffers == NULL || memory == NULL || shapes == NULL) {
    status = make_status(own->api, ORT_FAIL, "no memory for a run");
  } else {
    kt_buffer *late = buffers + inputs + outputs;
    status = run_with(own, context, buffers, buffers + inputs, memory, shapes, beside ? late : NULL);
    for (size_t i = 0; i < outputs; i++) free(late[i].data);
  }
  free(buffers);
  free(memory);
  free(shapes);
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
  fprintf(stderr, "kintune: %s\n", ((const char *(*)(const ort_status *))own->api[ERROR_TEXT])(status));
  release_status(own->api, status);
}

/* ---- the description of the operator ---- */

static int input_type(const ort_custom_op *op, size_t index) {
  (void)op;
  kt_tensor tensor;
  return kt_describe_input(model, 0, (int32_t)index, &tensor) == KT_OK ? onnx_type(&tensor) : 0;
}

static int output_type(const ort_custom_op *op, size_t index) {
  (void)op;
  kt_tensor tensor;
  return kt_describe_output(model, 0, (int32_t)index, &tensor) == KT_OK ? onnx_type(&tensor) : 0;
}

static size_t input_count(const ort_custom_op *op) { return (void)op, (size_t)kt_input_count(model); }
static size_t output_count(const ort_custom_op *op) { return (void)op, (size_t)kt_output_count(model); }
static const char *op_name(const ort_custom_op *op) { return (void)op, "KintuneNetwork"; }
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

/* ---- registration ---- */

/* Copies the first 16 digits of the model's digest from its manifest into `domain_name`. */
static kt_status name_domain(const kt_model *of) {
  static const char key[] = "\"model_digest\"";
  size_t nbytes = 0, length = sizeof key - 1;
  const char *text = kt_manifest(of, &nbytes);
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

/* Opens `model.kt` in the directory of this library. */
static kt_status open_model(void) {
  static const char name[] = "model.kt";
  Dl_info own;
  if (dladdr(domain_name, &own) == 0 || own.dli_fname == NULL) return kt_fail(KT_ERROR_FILE, "the library has no path");
  const char *slash = strrchr(own.dli_fname, '/');
  size_t length = slash == NULL ? 0 : (size_t)(slash - own.dli_fname) + 1;
  char *path = malloc(length + sizeof name);
  if (path == NULL) return kt_fail(KT_ERROR_MEMORY, "no memory for a path");
  memcpy(path, own.dli_fname, length);
  memcpy(path + length, name, sizeof name);
  kt_model *opened = NULL;
  kt_status status = kt_open(path, &opened);
  free(path);
  for (int i = 0; status == KT_OK && i < kt_input_count(opened) + kt_output_count(opened); i++) {
    kt_tensor tensor;
    int32_t inputs = kt_input_count(opened);
    status = i < inputs ? kt_describe_input(opened, 0, i, &tensor) : kt_describe_output(opened, 0, i - inputs, &tensor);
    if (status == KT_OK && onnx_type(&tensor) == 0)
      status = kt_fail(KT_ERROR_FORMAT, "'%.200s' has a type that onnxruntime does not have", tensor.name);
  }
  if (status == KT_OK) status = name_domain(opened);
  if (status == KT_OK) model = opened;
  else kt_close(opened);
  return status;
}

static ort_status *add_registration(ort_api api, uint32_t version, registration **made) {
  registration *own = calloc(1, sizeof *own);
  if (own == NULL) return make_status(api, ORT_FAIL, "no memory for an operator");
  *own = (registration){.op = description, .api = api, .version = version};
  own->op.version = version < API_RETURNS_ERRORS ? version : API_RETURNS_ERRORS;
  ort_status *status = ((ort_status * (*)(const char *, ort_domain **)) api[CREATE_DOMAIN])(domain_name, &own->domain);
  if (status == NULL) {
    status = ((ort_status * (*)(ort_domain *, const ort_custom_op *)) api[DOMAIN_ADD])(own->domain, &own->op);
    if (status == NULL) {
      own->next = registrations;
      *made = registrations = own;
      return NULL;
    }
    ((void (*)(ort_domain *))api[RELEASE_DOMAIN])(own->domain);
  }
  free(own);
  return status;
}

static ort_status *add_to(ort_options *options, ort_api api, uint32_t version) {
  registration *own = registrations;
  if (model == NULL) {
    kt_status failed = open_model();
    if (failed != KT_OK) return runtime_error(api, failed);
  }
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
  if (api == NULL) return NULL; /* without its functions there is no way to say so; it will not know the operator */
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
  kt_close(model);
  model = NULL;
}
