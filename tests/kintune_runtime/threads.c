/* Opens, runs and closes models in many threads at once, while others fork, touch the file, and replace it by renaming.
 *
 * The arguments are a file of one input and one output of COUNT floats, whose result is `x + 2 i`, one with indices among
 * its weights, whose result is `x`, and a folder. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kintune.h"

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "line %d: %s; %s\n", __LINE__, #condition, kt_last_error()); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

enum { COUNT = 1000, ROUNDS = 60, OPENERS = 3, RUNNERS = 3 };

static char paths[2][512];
static const char *sources[2];
static kt_model *shared;
static atomic_int left; /* threads that have not ended */

static void run(kt_context *context, float slope) {
  static _Thread_local _Alignas(64) float x[COUNT], y[COUNT];
  for (int i = 0; i < COUNT; i++) x[i] = (float)i;
  kt_buffer in = {x, sizeof x}, out = {y, sizeof y};
  CHECK(kt_run(context, &in, 1, &out, 1) == KT_OK);
  for (int i = 0; i < COUNT; i++) CHECK(y[i] == slope * (float)i);
}

static void serial_for(void *user, kt_part part, void *data, int32_t count) {
  (void)user;
  for (int32_t i = 0; i < count; i++) part(data, i);
}

/* A model of its own for each round: mapped, copied, or trusted with a key that it was not signed with. */
static void *open_and_close(void *argument) {
  int number = *(int *)argument;
  static const uint8_t key[32];
  for (int round = 0; round < ROUNDS; round++) {
    int which = (number + round) % 2;
    kt_open_options options = {.size = sizeof options, .variant = KT_BEST, .copy = round % 3 == 0};
    kt_model *model;
    kt_context *contexts[2];
    if (round % 5 == 0) {
      options.trusted = key;
      CHECK(kt_open_with(paths[which], &options, &model) != KT_OK && model == NULL);
      options.trusted = NULL;
    }
    CHECK(kt_open_with(paths[which], &options, &model) == KT_OK);
    for (int i = 0; i < 2; i++) {
      kt_options how = {sizeof how, 1 + (number + round + i) % 3, round % 4 == 1 ? serial_for : NULL, NULL};
      CHECK(kt_context_create(model, 0, &how, &contexts[i]) == KT_OK);
    }
    kt_close(model);
    for (int i = 0; i < 2; i++) run(contexts[i], which == 0 ? 3.0f : 1.0f);
    for (int i = 0; i < 2; i++) kt_context_close(contexts[i]);
  }
  atomic_fetch_sub(&left, 1);
  return NULL;
}

/* Contexts of one model, which is shared. */
static void *run_shared(void *argument) {
  int number = *(int *)argument;
  kt_options how = {sizeof how, 1 + number % 3, NULL, NULL};
  while (atomic_load(&left) > 0) {
    kt_context *context;
    CHECK(kt_context_create(shared, 0, &how, &context) == KT_OK);
    for (int i = 0; i < 10; i++) run(context, 3.0f);
    kt_context_close(context);
  }
  return NULL;
}

/* Marks files as written, and replaces them. */
static void *touch(void *argument) {
  char other[600], command[2048];
  (void)argument;
  for (int round = 0; atomic_load(&left) > 0; round++) {
    int which = round % 2;
    snprintf(other, sizeof other, "%s.part", paths[which]);
    snprintf(command, sizeof command, "cp '%s' '%s'", sources[which], other);
    if (round % 3 == 0) CHECK(system(command) == 0 && rename(other, paths[which]) == 0);
    else CHECK(chmod(paths[which], round % 3 == 1 ? 0600 : 0644) == 0);
    usleep(2000);
  }
  return NULL;
}

/* Children that run a model of theirs, and a context that the parent has made. */
static void *fork_children(void *argument) {
  kt_context *context;
  (void)argument;
  CHECK(kt_context_create(shared, 0, NULL, &context) == KT_OK);
  while (atomic_load(&left) > 0) {
    run(context, 3.0f);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      run(context, 3.0f);
      kt_model *model;
      kt_context *own;
      CHECK(kt_open(sources[1], &model) == KT_OK && kt_context_create(model, 0, NULL, &own) == KT_OK);
      run(own, 1.0f);
      kt_context_close(own);
      kt_close(model);
      kt_context_close(context);
      _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    usleep(1000);
  }
  kt_context_close(context);
  return NULL;
}

int main(int count, char **arguments) {
  CHECK(count == 4 || count == 5);
  for (int i = 0; i < 2; i++) {
    char command[2048];
    sources[i] = arguments[1 + i];
    snprintf(paths[i], sizeof paths[i], "%s/model%d.kt", arguments[3], i);
    snprintf(command, sizeof command, "cp '%s' '%s'", sources[i], paths[i]);
    CHECK(system(command) == 0);
  }
  CHECK(kt_open(paths[0], &shared) == KT_OK);
  pthread_t threads[OPENERS + RUNNERS + 2];
  int numbers[OPENERS + RUNNERS], started = 0;
  atomic_store(&left, OPENERS);
  for (int i = 0; i < OPENERS + RUNNERS; i++) {
    numbers[i] = i;
    CHECK(pthread_create(&threads[started++], NULL, i < OPENERS ? open_and_close : run_shared, &numbers[i]) == 0);
  }
  CHECK(pthread_create(&threads[started++], NULL, touch, NULL) == 0);
  if (count == 4) CHECK(pthread_create(&threads[started++], NULL, fork_children, NULL) == 0);
  for (int i = 0; i < started; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  kt_close(shared);
  puts("done");
  return 0;
}
