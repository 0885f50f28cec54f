/* Runs a model that flushes denormal numbers to zero, and one that keeps them: both compute x + 0 + 0 of many elements.
 *
 * Prints "done" where all threads have done so, and the caller's own state is what it was. */
#include <stdio.h>
#include <stdlib.h>

#include "kintune.h"

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "line %d: %s; %s\n", __LINE__, #condition, kt_last_error()); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

enum { COUNT = 4096 };

static const float TINY = 1e-40f;
static _Alignas(64) float x[COUNT], y[COUNT];

static float product(float a, float b) {
  volatile float one = a, other = b;
  return one * other;
}

static void serial_for(void *user, kt_part part, void *data, int32_t count) {
  (void)user;
  for (int32_t i = 0; i < count; i++) part(data, i);
}

static void run(const char *path, kt_parallel_for parallel_for, float expected) {
  kt_model *model;
  kt_context *context;
  kt_options options = {sizeof options, 3, parallel_for, NULL};
  kt_buffer in = {x, sizeof x}, out = {y, sizeof y};
  CHECK(kt_open(path, &model) == KT_OK);
  CHECK(kt_context_create(model, 0, &options, &context) == KT_OK);
  for (int round = 0; round < 10; round++) {
    for (int i = 0; i < COUNT; i++) y[i] = 1.0f;
    CHECK(kt_run(context, &in, 1, &out, 1) == KT_OK);
    for (int i = 0; i < COUNT; i++) CHECK(y[i] == expected);
    CHECK(product(TINY, 1.0f) == TINY && product(1e-38f, 0.5f) != 0.0f);
  }
  kt_context_close(context);
  kt_close(model);
}

int main(int count, char **arguments) {
  CHECK(count == 3);
  for (int i = 0; i < COUNT; i++) x[i] = TINY;
  for (int own = 0; own < 2; own++) {
    run(arguments[1], own ? serial_for : NULL, 0.0f);
    run(arguments[2], own ? serial_for : NULL, TINY);
  }
  puts("done");
  return 0;
}
