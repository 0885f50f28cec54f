/* Uses the whole interface from many threads, on models of `toy_model.py`; run under the sanitizers.
 *
 * The second model has three variants, of which the second one runs here; the third runs partly in onnxruntime,
 * the fourth has an index as an input. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kintune.h"

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "line %d: %s; %s\n", __LINE__, #condition, kt_last_error()); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

enum { COUNT = 1000, ROUNDS = 200, THREADS = 4 };

static kt_model *model;
static kt_context *shared;
static int refused;

static void serial_for(void *user, kt_part part, void *data, int32_t count) {
  ++*(int *)user;
  for (int32_t i = count - 1; i >= 0; i--) part(data, i);
}

static void run_right(kt_context *context, float start) {
  static _Thread_local float memory[COUNT + 1], out[COUNT + 1];
  for (int shift = 0; shift < 2; shift++) {
    float *x = memory + shift, *y = out + shift;
    for (int i = 0; i < COUNT; i++) x[i] = start;
    kt_buffer in = {x, COUNT * sizeof *x}, to = {y, COUNT * sizeof *y};
    CHECK(kt_run(context, &in, 1, &to, 1) == KT_OK);
    for (int i = 0; i < COUNT; i++) CHECK(y[i] == start + 2.0f * (float)i);
  }
}

static void *own_context(void *argument) {
  int number = *(int *)argument, calls = 0;
  for (int round = 0; round < ROUNDS / 10; round++) {
    kt_options options = {sizeof options, 1 + (number + round) % 3, number % 2 ? serial_for : NULL, &calls};
    kt_context *context;
    CHECK(kt_context_create(model, 0, &options, &context) == KT_OK);
    for (int i = 0; i < 10; i++) run_right(context, (float)(number + i));
    kt_context_close(context);
  }
  return NULL;
}

static void *same_context(void *argument) {
  (void)argument;
  float x[COUNT] = {0}, y[COUNT];
  kt_buffer in = {x, sizeof x}, to = {y, sizeof y};
  for (int round = 0; round < ROUNDS; round++) {
    kt_status status = kt_run(shared, &in, 1, &to, 1);
    CHECK(status == KT_OK || status == KT_ERROR_BUSY);
    if (status == KT_ERROR_BUSY) __atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
  }
  return NULL;
}

/* A run of another context inside a launch of this one: by a thread that waits there, or by a hook. */
static kt_context *inner;

static void nested_for(void *user, kt_part part, void *data, int32_t count) {
  (void)user;
  for (int32_t i = 0; i < count; i++) {
    run_right(inner, 5.0f);
    part(data, i);
  }
}

static void nested(void) {
  kt_options options = {sizeof options, 3, nested_for, NULL};
  kt_context *outer;
  CHECK(kt_context_create(model, 0, &options, &outer) == KT_OK && kt_context_create(model, 0, NULL, &inner) == KT_OK);
  float x[COUNT], y[COUNT];
  for (int i = 0; i < COUNT; i++) x[i] = 1.0f;
  kt_buffer in = {x, sizeof x}, to = {y, sizeof y};
  CHECK(kt_run(outer, &in, 1, &to, 1) == KT_OK);
  for (int i = 0; i < COUNT; i++) CHECK(y[i] == 1.0f + 2.0f * (float)i);
  kt_context_close(outer);
  kt_context_close(inner);
}

static void hook(void *user, const char *kernel, int32_t place, int64_t nanoseconds) {
  CHECK(strcmp(kernel, "add") == 0 && place == *(int *)user % 2 && nanoseconds >= 0);
  ++*(int *)user;
}

static float product(float a, float b) {
  volatile float x = a, y = b;
  return x * y;
}

/* Denormal numbers are zeros in a run, and what they were to the caller afterwards. */
static void denormals(void) {
  float x[COUNT], y[COUNT];
  for (int i = 0; i < COUNT; i++) x[i] = 1e-40f;
  kt_buffer in = {x, sizeof x}, to = {y, sizeof y};
  kt_context *context;
  CHECK(kt_context_create(model, 0, NULL, &context) == KT_OK);
  CHECK(kt_run(context, &in, 1, &to, 1) == KT_OK);
  CHECK(y[0] == 0.0f && y[COUNT - 1] == 2.0f * (float)(COUNT - 1));
  CHECK(product(1e-40f, 1.0f) == 1e-40f && product(1e-38f, 0.5f) != 0.0f);
  kt_context_close(context);
}

static void misuse(void) {
  kt_context *context;
  kt_tensor tensor;
  kt_model *none;
  float x[COUNT] = {0};
  kt_buffer right = {x, sizeof x}, small = {x, 4}, null = {NULL, sizeof x};
  CHECK(kt_open(NULL, &none) == KT_ERROR_ARGUMENT && kt_open("/nowhere", &none) == KT_ERROR_FILE && none == NULL);
  CHECK(kt_describe_input(model, 0, 1, &tensor) == KT_ERROR_ARGUMENT);
  CHECK(kt_describe_input(model, 7, 0, &tensor) == KT_ERROR_ARGUMENT);
  CHECK(kt_describe_input(model, 0, 0, &tensor) == KT_OK);
  int32_t plan = -1;
  int64_t other[3] = {1, 2, 3};
  kt_shape fits = {tensor.shape, tensor.rank}, differs = {other, 3};
  CHECK(kt_find_plan(model, &fits, 1, &plan) == KT_OK && plan == 0);
  CHECK(kt_find_plan(model, &differs, 1, &plan) == KT_ERROR_ARGUMENT);
  CHECK(strstr(kt_last_error(), "=1x2x3 were not tuned") != NULL);
  CHECK(kt_find_plan(model, &fits, 0, &plan) == KT_ERROR_ARGUMENT);
  CHECK(kt_find_plan(NULL, &fits, 1, &plan) == KT_ERROR_ARGUMENT);
  CHECK(kt_find_plan(model, NULL, 1, &plan) == KT_ERROR_ARGUMENT);
  CHECK(kt_find_plan(model, &fits, 1, NULL) == KT_ERROR_ARGUMENT);
  CHECK(kt_context_create(model, 1, NULL, &context) == KT_ERROR_ARGUMENT && context == NULL);
  kt_options wrong = {4, 1, NULL, NULL}, many = {sizeof many, 1 << 20, NULL, NULL};
  CHECK(kt_context_create(model, 0, &wrong, &context) == KT_ERROR_ARGUMENT);
  CHECK(kt_context_create(model, 0, &many, &context) == KT_ERROR_ARGUMENT);
  CHECK(kt_context_create(model, 0, NULL, &context) == KT_OK);
  CHECK(kt_run(context, &right, 1, &small, 1) == KT_ERROR_ARGUMENT && strstr(kt_last_error(), "'out' has 4 bytes, 4000"));
  CHECK(kt_run(context, &null, 1, &right, 1) == KT_ERROR_ARGUMENT && kt_run(context, NULL, 1, &right, 1) == KT_ERROR_ARGUMENT);
  CHECK(kt_run(context, &right, 2, &right, 1) == KT_ERROR_ARGUMENT && kt_run(NULL, &right, 1, &right, 1) == KT_ERROR_ARGUMENT);
  int place = 0;
  CHECK(kt_set_hook(context, hook, &place) == KT_OK);
  run_right(context, 1.0f);
  CHECK(kt_set_hook(context, NULL, NULL) == KT_OK && place == 4);
  kt_context_close(context);
  kt_context_close(NULL);
  kt_close(NULL);
}

static void variants(const char *path) {
  kt_model *opened;
  kt_variant found;
  CHECK(kt_open_variant(path, KT_BEST, &opened) == KT_OK && kt_describe_variant(opened, &found) == KT_OK);
  CHECK(found.number == 1 && found.total == 3 && found.threads == 2 && strcmp(found.cpu, "a CPU") == 0);
  CHECK(strcmp(found.isa, "") == 0 && strlen(found.machine) > 0 && kt_plan_count(opened) == 1);
  CHECK(kt_describe_variant(NULL, &found) == KT_ERROR_ARGUMENT && kt_describe_variant(opened, NULL) == KT_ERROR_ARGUMENT);
  kt_context *context;
  CHECK(kt_context_create(opened, 0, NULL, &context) == KT_OK);
  kt_close(opened);
  run_right(context, 2.0f);
  kt_context_close(context);
  CHECK(kt_open_variant(path, 0, &opened) == KT_ERROR_UNSUPPORTED && opened == NULL && strstr(kt_last_error(), "riscv64"));
  CHECK(kt_open_variant(path, 2, &opened) == KT_ERROR_UNSUPPORTED && strstr(kt_last_error(), "lacks: avx1024"));
  CHECK(kt_open_variant(path, 3, &opened) == KT_ERROR_ARGUMENT && strstr(kt_last_error(), "there are 3"));
  CHECK(kt_open_variant(path, -2, &opened) == KT_ERROR_ARGUMENT);
}

static uint8_t *read_file(const char *path, size_t *size, size_t *room) {
  FILE *file = fopen(path, "rb");
  CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
  *size = (size_t)ftell(file);
  *room = (*size + 63) / 64 * 64;
  uint8_t *content = aligned_alloc(64, *room);
  rewind(file);
  CHECK(fread(content, 1, *size, file) == *size);
  fclose(file);
  return content;
}

/* Opens what runs partly in onnxruntime, whole and damaged: it is refused. */
static void partly(const char *path) {
  kt_model *none;
  CHECK(kt_open(path, &none) == KT_ERROR_UNSUPPORTED && none == NULL);
  CHECK(strstr(kt_last_error(), "runs partly in onnxruntime (CumSum): open it with kintune_runtime") != NULL);
  size_t size, room;
  uint8_t *content = read_file(path, &size, &room), *copy = aligned_alloc(64, room);
  for (size_t place = 0; place < size; place += place < 8192 ? 1 : 509) {
    memcpy(copy, content, size);
    copy[place] ^= (uint8_t)(1u << place % 8);
    CHECK(kt_open_memory(copy, size, &none) != KT_OK && kt_open_memory(content, place, &none) != KT_OK);
  }
  free(content);
  free(copy);
}

/* Runs on indices at an address that no int64_t has: the second input, six of them between -10 and 9. */
static void indices(const char *path) {
  kt_model *opened;
  kt_context *context;
  CHECK(kt_open(path, &opened) == KT_OK && kt_context_create(opened, 0, NULL, &context) == KT_OK);
  float seconds = 0.0f, out;
  int64_t values[6] = {-10, 9, 0, 1, 2, 3};
  static _Alignas(64) uint8_t memory[sizeof values + 1];
  kt_buffer in[] = {{&seconds, sizeof seconds}, {memory + 1, sizeof values}}, to = {&out, sizeof out};
  memcpy(memory + 1, values, sizeof values);
  CHECK(kt_run(context, in, 2, &to, 1) == KT_OK);
  values[4] = 10;
  memcpy(memory + 1, values, sizeof values);
  CHECK(kt_run(context, in, 2, &to, 1) == KT_ERROR_VALUE && strstr(kt_last_error(), "holds 10 at [4]") != NULL);
  kt_context_close(context);
  kt_close(opened);
}

/* Opens copies of the file in memory, each damaged at another place. */
static void damage(const char *path) {
  size_t size, room;
  uint8_t *content = read_file(path, &size, &room), *copy = aligned_alloc(64, room);
  for (size_t place = 0; place < size; place += place % 4096 < 512 ? 7 : 211) {
    memcpy(copy, content, size);
    copy[place] ^= (uint8_t)(1u << place % 8);
    kt_model *damaged;
    if (kt_open_memory(copy, size, &damaged) == KT_OK) kt_close(damaged);
    if (kt_open_memory(content, place, &damaged) == KT_OK) kt_close(damaged);
  }
  kt_model *whole;
  CHECK(kt_open_memory(content, size, &whole) == KT_OK && kt_plan_count(whole) == 1);
  kt_close(whole);
  free(content);
  free(copy);
}

int main(int count, char **arguments) {
  CHECK(count == 5 && kt_version() >> 16 == KT_VERSION_MAJOR);
  CHECK(kt_open(arguments[1], &model) == KT_OK);
  CHECK(kt_context_create(model, 0, NULL, &shared) == KT_OK);
  pthread_t threads[2 * THREADS];
  int numbers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    numbers[i] = i;
    CHECK(pthread_create(&threads[2 * i], NULL, own_context, &numbers[i]) == 0);
    CHECK(pthread_create(&threads[2 * i + 1], NULL, same_context, NULL) == 0);
  }
  for (int i = 0; i < 2 * THREADS; i++) pthread_join(threads[i], NULL);
  misuse();
  denormals();
  nested();
  kt_close(model);
  run_right(shared, 3.0f); /* it keeps the model */
  kt_context_close(shared);
  variants(arguments[2]);
  damage(arguments[1]);
  damage(arguments[2]);
  partly(arguments[3]);
  indices(arguments[4]);
  puts("done");
  return 0;
}
