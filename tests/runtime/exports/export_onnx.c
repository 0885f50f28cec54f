/* Runs an export with onnxruntime's library, from four threads.
 *
 *     PROGRAM libonnxruntime.so DIR/libkintune_onnx.so FILE.onnx
 *
 * The model computes out = x + w + w of 1000 elements, w[i] = i. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 1000

typedef void (*const *table)(void);
typedef struct {
  table (*get)(unsigned version);
  const char *(*version)(void);
} base;
typedef void *status;

static table api;
static void *session, *memory;

static void check(status failed) {
  if (failed == NULL) return;
  fprintf(stderr, "%s\n", ((const char *(*)(status))api[2])(failed));
  exit(1);
}

static void release(int place, void *object) { ((void (*)(void *))api[place])(object); }

static status run(float *data, long long count, void **output) {
  const char *in = "x", *out = "out";
  void *input = NULL;
  *output = NULL;
  check(((status(*)(void *, void *, size_t, const long long *, size_t, int, void **))api[49])(
      memory, data, (size_t)count * sizeof *data, &count, 1, 1, &input));
  status failed = ((status(*)(void *, void *, const char *const *, const void *const *, size_t, const char *const *,
                              size_t, void **))api[9])(session, NULL, &in, (const void *const *)&input, 1, &out, 1,
                                                       output);
  release(96, input);
  return failed;
}

static void *many(void *number) {
  float *data = aligned_alloc(64, 64 * COUNT);
  for (int round = 0; round < 100; round++) {
    void *output, *found;
    float *x = data + round % 3; /* in place, or copied first */
    for (int i = 0; i < COUNT; i++) x[i] = *(int *)number + 0.5f * (float)(i % 7);
    check(run(x, COUNT, &output));
    check(((status(*)(void *, void **))api[51])(output, &found));
    for (int i = 0; i < COUNT; i++) {
      if (((float *)found)[i] == x[i] + (float)i + (float)i) continue;
      fprintf(stderr, "element %d is wrong\n", i);
      exit(1);
    }
    release(96, output);
  }
  free(data);
  return NULL;
}

int main(int count, char **paths) {
  if (count != 4) return 2;
  void *onnxruntime = dlopen(paths[1], RTLD_NOW | RTLD_LOCAL), *library = dlopen(paths[2], RTLD_NOW | RTLD_LOCAL);
  if (onnxruntime == NULL || library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
  const base *(*get_base)(void);
  status (*register_all)(void *, const base *);
  *(void **)&get_base = dlsym(onnxruntime, "OrtGetApiBase");
  *(void **)&register_all = dlsym(library, "RegisterCustomOps");
  api = get_base()->get(17);
  for (int round = 0; round < 2; round++) {
    void *environment, *options;
    check(((status(*)(int, const char *, void **))api[3])(4, "test", &environment));
    check(((status(*)(void **))api[10])(&options));
    check(register_all(options, get_base()));
    check(((status(*)(void *, const char *, void *, void **))api[7])(environment, paths[3], options, &session));
    check(((status(*)(int, int, void **))api[69])(1, 0, &memory));
    pthread_t threads[4];
    int numbers[4] = {0, 1, 2, 3};
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, many, &numbers[i]);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    float wrong[5] = {0};
    void *output;
    status failed = run(wrong, 5, &output);
    if (failed == NULL) return fprintf(stderr, "a wrong shape was not refused\n"), 1;
    printf("%s\n", ((const char *(*)(status))api[2])(failed));
    release(93, failed);
    release(94, memory);
    release(95, session);
    release(100, options);
    release(92, environment);
  }
  dlclose(library);
  printf("done\n");
  return 0;
}
