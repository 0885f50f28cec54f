/* Runs a network on sets of inputs from files, and writes its outputs to files.
 *
 *     ./run_sets model.kt folder sets
 *
 * The bytes of input 1 of set 0 are in `folder/in0_1`; those of output 1 are written to `folder/out0_1`.
 */
#include <stdio.h>
#include <stdlib.h>

#include "kintune.h"

static int fail(void) {
  fprintf(stderr, "%s\n", kt_last_error());
  return 1;
}

static FILE *file_of(const char *folder, const char *what, int set, int number, const char *mode) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s%d_%d", folder, what, set, number);
  return fopen(path, mode);
}

static kt_buffer memory_of(size_t nbytes) {
  return (kt_buffer){aligned_alloc(64, (nbytes + 127) / 64 * 64), nbytes};
}

int main(int count, char **arguments) {
  kt_model *model;
  kt_context *context;
  kt_options options = {sizeof options, 1, NULL, NULL};
  if (count != 4) return 2;
  if (kt_open(arguments[1], &model) != KT_OK) return fail();
  if (kt_context_create(model, 0, &options, &context) != KT_OK) return fail();
  int32_t input_count = kt_input_count(model), output_count = kt_output_count(model);
  for (int set = 0; set < atoi(arguments[3]); set++) {
    kt_buffer *inputs = calloc((size_t)input_count + 1, sizeof *inputs);
    kt_buffer *outputs = calloc((size_t)output_count + 1, sizeof *outputs);
    for (int32_t i = 0; i < input_count; i++) {
      kt_tensor tensor;
      if (kt_describe_input(model, 0, i, &tensor) != KT_OK) return fail();
      inputs[i] = memory_of(tensor.nbytes);
      FILE *file = file_of(arguments[2], "in", set, i, "rb");
      if (!file || fread(inputs[i].data, 1, tensor.nbytes, file) != tensor.nbytes) return 3;
      fclose(file);
    }
    for (int32_t i = 0; i < output_count; i++) {
      kt_tensor tensor;
      if (kt_describe_output(model, 0, i, &tensor) != KT_OK) return fail();
      outputs[i] = memory_of(tensor.nbytes);
    }
    if (kt_run(context, inputs, input_count, outputs, output_count) != KT_OK) return fail();
    for (int32_t i = 0; i < output_count; i++) {
      FILE *file = file_of(arguments[2], "out", set, i, "wb");
      if (!file || fwrite(outputs[i].data, 1, outputs[i].nbytes, file) != outputs[i].nbytes) return 3;
      fclose(file);
      free(outputs[i].data);
    }
    for (int32_t i = 0; i < input_count; i++) free(inputs[i].data);
    free(inputs);
    free(outputs);
  }
  kt_context_close(context);
  kt_close(model);
  return 0;
}
