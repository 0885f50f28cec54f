/* Runs a network a hundred times on memory of ones, and prints its latency and the first elements of each output.
 *
 *     ./example [model.kt] [threads]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kintune.h"

#define RUNS 100

static int fail(void) {
  fprintf(stderr, "%s\n", kt_last_error());
  return 1;
}

/* Memory at a multiple of 64 bytes, which a network reads and writes in place. */
static kt_buffer memory_for(const kt_tensor *tensor) {
  size_t nbytes = (tensor->nbytes + 63) / 64 * 64;
  return (kt_buffer){aligned_alloc(64, nbytes ? nbytes : 64), tensor->nbytes};
}

static void fill_with_ones(const kt_tensor *tensor, void *data) {
  memset(data, 0, tensor->nbytes);
  for (size_t i = 0; i < tensor->nbytes / (size_t)(tensor->bits / 8); i++) {
    if (tensor->kind == KT_FLOAT && tensor->bits == 32) ((float *)data)[i] = 1.0f;
    else if (tensor->kind == KT_FLOAT && tensor->bits == 64) ((double *)data)[i] = 1.0;
    else if (tensor->bits == 64) ((int64_t *)data)[i] = 1;
    else if (tensor->bits == 32) ((int32_t *)data)[i] = 1;
    else if (tensor->bits == 8) ((int8_t *)data)[i] = 1;
  }
}

static void print(const kt_tensor *tensor, const void *data) {
  printf("%s [", tensor->name);
  for (int i = 0; i < tensor->rank; i++) printf(i ? " x %lld" : "%lld", (long long)tensor->shape[i]);
  printf("]");
  if (tensor->kind == KT_FLOAT && tensor->bits == 32)
    for (size_t i = 0; i < 4 && i < tensor->nbytes / 4; i++) printf(" %g", (double)((const float *)data)[i]);
  printf("\n");
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int count, char **arguments) {
  kt_model *model;
  kt_context *context;
  kt_options options = {sizeof options, count > 2 ? atoi(arguments[2]) : 0, NULL, NULL};
  if (kt_open(count > 1 ? arguments[1] : "model.kt", &model) != KT_OK) return fail();
  if (kt_context_create(model, 0, &options, &context) != KT_OK) return fail();

  int32_t input_count = kt_input_count(model), output_count = kt_output_count(model);
  kt_buffer *inputs = calloc((size_t)input_count + 1, sizeof *inputs);
  kt_buffer *outputs = calloc((size_t)output_count + 1, sizeof *outputs);
  for (int32_t i = 0; i < input_count; i++) {
    kt_tensor tensor;
    if (kt_describe_input(model, 0, i, &tensor) != KT_OK) return fail();
    inputs[i] = memory_for(&tensor);
    fill_with_ones(&tensor, inputs[i].data);
  }
  for (int32_t i = 0; i < output_count; i++) {
    kt_tensor tensor;
    if (kt_describe_output(model, 0, i, &tensor) != KT_OK) return fail();
    outputs[i] = memory_for(&tensor);
  }

  double best = 1e9;
  for (int run = 0; run < RUNS; run++) {
    double start = seconds();
    if (kt_run(context, inputs, input_count, outputs, output_count) != KT_OK) return fail();
    double taken = seconds() - start;
    if (taken < best) best = taken;
  }
  for (int32_t i = 0; i < output_count; i++) {
    kt_tensor tensor;
    if (kt_describe_output(model, 0, i, &tensor) != KT_OK) return fail();
    print(&tensor, outputs[i].data);
    free(outputs[i].data);
  }
  printf("fastest of %d runs: %.3f ms\n", RUNS, 1e3 * best);

  for (int32_t i = 0; i < input_count; i++) free(inputs[i].data);
  free(inputs);
  free(outputs);
  kt_context_close(context);
  kt_close(model);
  return 0;
}
