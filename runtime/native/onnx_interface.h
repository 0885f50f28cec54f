/* The interface of onnxruntime, as far as the custom operators use it, and what their two files share.
 *
 * No header of onnxruntime is used: its interface in C is a table of functions, and a table that describes an operator.
 * New versions only append to them. */
#ifndef KINTUNE_ONNX_INTERFACE_H
#define KINTUNE_ONNX_INTERFACE_H

#include "internal.h"

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

static inline ort_status *make_status(ort_api api, int code, const char *text) {
  return ((ort_status * (*)(int, const char *)) api[CREATE_STATUS])(code, text);
}

static inline void release_status(ort_api api, ort_status *status) { ((void (*)(ort_status *))api[RELEASE_STATUS])(status); }

/* The status for the last failure of the runtime. */
static inline ort_status *runtime_error(ort_api api, kt_status status) {
  bool given = status == KT_ERROR_ARGUMENT || status == KT_ERROR_VALUE || status == KT_ERROR_FILE;
  return make_status(api, given ? ORT_INVALID_ARGUMENT : ORT_FAIL, kt_last_error());
}

/* ---- onnx_operator.c: an operator ---- */

/* What an operator runs: a file for CPUs, or a region of one that runs partly in onnxruntime. */
typedef struct {
  kt_model *model;
  char name[32];
  bool is_region;
  int32_t plan_count;
  int32_t input_count;
  int32_t output_count;
  kt_tensor *tensors; /* of each plan: its inputs, then its outputs */
} kt_network;

/* An operator in one copy of onnxruntime.  The description is first: onnxruntime hands its address back. */
typedef struct {
  ort_custom_op op;
  ort_api api;
  uint32_t version;
  const kt_network *network;
} kt_operator;

/* Reads the types and shapes of inputs and outputs, and refuses types that onnxruntime does not have.  `model` and
 * `name` must be set. */
kt_status kt_network_describe(kt_network *network);

/* Closes the model, too. */
void kt_network_close(kt_network *network);

void kt_operator_make(kt_operator *made, ort_api api, uint32_t version, const kt_network *network);

#endif
