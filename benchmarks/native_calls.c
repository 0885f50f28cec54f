/* Prints the median microseconds of `kt_run` on the one input and output of a model: `native_calls MODEL.kt`. */
#define _POSIX_C_SOURCE 200809L
#include <kintune.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { RUNS = 20000 };

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return 1e6 * (double)time.tv_sec + 1e-3 * (double)time.tv_nsec;
}

static int by_value(const void *one, const void *other) {
  double a = *(const double *)one, b = *(const double *)other;
  return (a > b) - (a < b);
}

int main(int count, char **arguments) {
  static double times[RUNS];
  kt_model *model = NULL;
  kt_context *context = NULL;
  if (count != 2 || kt_open(arguments[1], &model) != KT_OK || kt_context_create(model, 0, NULL, &context) != KT_OK) {
    fprintf(stderr, "%s\n", kt_last_error());
    return 1;
  }
  void *input = aligned_alloc(64, 4096), *output = aligned_alloc(64, 4096);
  kt_buffer given = {input, 4000}, made = {output, 4000};
  for (int i = 0; i < RUNS; i++) {
    double begun = now_us();
    if (kt_run(context, &given, 1, &made, 1) != KT_OK) {
      fprintf(stderr, "%s\n", kt_last_error());
      return 1;
    }
    times[i] = now_us() - begun;
  }
  qsort(times, RUNS, sizeof *times, by_value);
  printf("%.3f\n", times[RUNS / 2]);
  return 0;
}
