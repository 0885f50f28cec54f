/* Opens models and changes their files: by renaming, by writing in place, by cutting them in the middle of a run.
 *
 * The arguments are a file (see `adding` in toy_model.py: out = x + w + w, where w counts up), a folder, and a file whose
 * kernels read by fixed indices, in two calls that turn the order of elements around. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kintune.h"

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "line %d: %s; %s\n", __LINE__, #condition, kt_last_error()); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

enum { COUNT = 100000, THREADS = 4 };

static const char *source, *folder, *gathering;
static char path[512], other[512];

static void copy_file(const char *to) {
  char command[2048];
  snprintf(command, sizeof command, "cp '%s' '%s'", source, to);
  CHECK(system(command) == 0);
}

/* A copy of its own for each test. */
static void fresh(void) {
  snprintf(path, sizeof path, "%s/model.kt", folder);
  snprintf(other, sizeof other, "%s/other.kt", folder);
  unlink(path);
  copy_file(path);
}

static kt_context *opened(int32_t threads) {
  kt_model *model;
  kt_context *context;
  kt_options options = {sizeof options, threads, NULL, NULL};
  CHECK(kt_open(path, &model) == KT_OK && kt_context_create(model, 0, &options, &context) == KT_OK);
  kt_close(model);
  return context;
}

static kt_status run(kt_context *context) {
  static _Thread_local float x[COUNT], y[COUNT];
  for (int i = 0; i < COUNT; i++) x[i] = 1.0f;
  kt_buffer in = {x, sizeof x}, out = {y, sizeof y};
  kt_status status = kt_run(context, &in, 1, &out, 1);
  for (int i = 0; i < COUNT && status == KT_OK; i++) CHECK(y[i] == 1.0f + 2.0f * (float)i);
  return status;
}

/* The context's file was changed: now and from now on. */
static void is_refused(kt_context *context) {
  for (int i = 0; i < 3; i++) {
    CHECK(run(context) == KT_ERROR_FILE);
    CHECK(strstr(kt_last_error(), "model.kt: was changed in place while it was open") != NULL);
  }
  kt_context_close(context);
}

static void write_in_place(off_t place, const void *data, size_t nbytes) {
  int file = open(path, O_WRONLY);
  CHECK(file >= 0 && pwrite(file, data, nbytes, place) == (ssize_t)nbytes && close(file) == 0);
}

static off_t size_of(void) {
  struct stat about;
  CHECK(stat(path, &about) == 0);
  return about.st_size;
}

static void renamed_and_deleted(void) {
  fresh();
  kt_context *context = opened(2), *second = opened(1);
  copy_file(other);
  CHECK(rename(other, path) == 0 && run(context) == KT_OK && truncate(path, 0) == 0 && run(context) == KT_OK);
  CHECK(unlink(path) == 0 && run(context) == KT_OK && run(second) == KT_OK);
  kt_context_close(context);
  kt_context_close(second);
}

static void renamed_or_marked(void) {
  fresh();
  kt_context *context = opened(2);
  CHECK(chmod(path, 0600) == 0 && run(context) == KT_OK && run(context) == KT_OK);
  CHECK(link(path, other) == 0 && run(context) == KT_OK && unlink(other) == 0 && run(context) == KT_OK);
  kt_context_close(context);
}

static void written(void) {
  static const float five[64] = {5.0f};
  struct stat before;
  fresh();
  kt_context *context = opened(2);
  CHECK(stat(path, &before) == 0);
  write_in_place(size_of() - 100000, five, sizeof five);
  is_refused(context);

  fresh(); /* the time is put back, as `cp --preserve` and `rsync --inplace` may do */
  context = opened(2);
  CHECK(stat(path, &before) == 0);
  write_in_place(size_of() - 100000, five, sizeof five);
  struct timespec times[2] = {before.st_atim, before.st_mtim};
  CHECK(utimensat(AT_FDCWD, path, times, 0) == 0);
  is_refused(context);
}

static void cut(void) {
  fresh();
  kt_context *context = opened(2);
  CHECK(truncate(path, 8192) == 0);
  is_refused(context);
  fresh();
  context = opened(2);
  kt_context *second = opened(1);
  CHECK(truncate(path, 8192) == 0 && run(context) == KT_ERROR_FILE);
  copy_file(path); /* as it was */
  CHECK(run(context) == KT_OK && run(second) == KT_OK);
  kt_context_close(context);
  kt_context_close(second);
}

/* Written to with what it has already, or marked so, as `touch` and `rsync --times` do. */
static void written_alike(void) {
  fresh();
  kt_context *context = opened(2);
  copy_file(path);
  CHECK(run(context) == KT_OK && utimensat(AT_FDCWD, path, NULL, 0) == 0);
  for (int i = 0; i < 100; i++) CHECK(run(context) == KT_OK);
  struct timespec times[2] = {{1000000000, 7}, {1000000000, 7}};
  CHECK(utimensat(AT_FDCWD, path, times, 0) == 0 && run(context) == KT_OK && run(context) == KT_OK);
  CHECK(truncate(path, 8192) == 0 && run(context) == KT_ERROR_FILE);
  kt_context_close(context);
}

static void touch_here(void *user, const char *kernel, int32_t place, int64_t nanoseconds) {
  (void)user, (void)kernel, (void)nanoseconds;
  struct timespec times[2] = {{1000000000, 7}, {1000000000, 7}};
  if (place == 0) CHECK(utimensat(AT_FDCWD, path, times, 0) == 0);
}

/* In the middle of a run, what was written is not known: it may have been put back. */
static void written_in_a_run(void) {
  fresh();
  kt_context *context = opened(2);
  CHECK(kt_set_hook(context, touch_here, NULL) == KT_OK && run(context) == KT_ERROR_FILE);
  CHECK(kt_set_hook(context, NULL, NULL) == KT_OK && run(context) == KT_OK);
  kt_context_close(context);
}

static void cut_here(void *user, const char *kernel, int32_t place, int64_t nanoseconds) {
  (void)kernel, (void)nanoseconds;
  if (place == 0) CHECK(truncate(path, *(off_t *)user) == 0);
}

/* After the first kernel: the second one reads weights that are gone, in all threads. */
static void cut_in_a_run(void) {
  for (int32_t threads = 1; threads <= 3; threads++) {
    fresh();
    off_t left[] = {0, 4096, size_of() - COUNT * 2};
    for (int i = 0; i < 3; i++) {
      fresh();
      kt_context *context = opened(threads);
      CHECK(kt_set_hook(context, cut_here, &left[i]) == KT_OK);
      is_refused(context);
    }
  }
}

/* Overwrites all of the file with indices that lead far away, after it was cut if `*user` says so. */
static void overwrite_here(void *user, const char *kernel, int32_t place, int64_t nanoseconds) {
  (void)kernel, (void)nanoseconds;
  static int64_t wrong[COUNT];
  if (place != 0) return;
  for (int i = 0; i < COUNT; i++) wrong[i] = INT64_C(1) << 40;
  if (*(bool *)user) CHECK(truncate(path, 0) == 0 && truncate(path, INT64_C(1) << 21) == 0);
  for (off_t at = 0; at < 1 << 21; at += (off_t)sizeof wrong) write_in_place(at, wrong, sizeof wrong);
}

/* Kernels do not check indices that are weights: they are those of the file as it was opened. */
static void indices_stay(void) {
  for (int cut = 0; cut < 2; cut++) {
    char command[2048];
    fresh();
    snprintf(command, sizeof command, "cp '%s' '%s'", gathering, path);
    CHECK(system(command) == 0 && size_of() < 1 << 21);
    kt_context *context = opened(1);
    static float x[COUNT], y[COUNT];
    kt_buffer in = {x, sizeof x}, out = {y, sizeof y};
    for (int i = 0; i < COUNT; i++) x[i] = (float)i;
    CHECK(kt_run(context, &in, 1, &out, 1) == KT_OK && y[1] == 1.0f && y[COUNT - 1] == COUNT - 1);
    bool is_cut = cut != 0;
    CHECK(kt_set_hook(context, overwrite_here, &is_cut) == KT_OK);
    CHECK(kt_run(context, &in, 1, &out, 1) == KT_ERROR_FILE && y[1] == 1.0f && y[COUNT - 1] == COUNT - 1);
    kt_context_close(context);
  }
}

static void *run_until_refused(void *context) {
  while (run(context) == KT_OK) continue;
  is_refused(context);
  return NULL;
}

static void cut_while_threads_run(void) {
  fresh();
  kt_context *contexts[THREADS];
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) contexts[i] = opened(1 + i % 2);
  for (int i = 0; i < THREADS; i++) CHECK(run(contexts[i]) == KT_OK);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, run_until_refused, contexts[i]) == 0);
  usleep(20000);
  CHECK(truncate(path, 4096) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

static void copied(void) {
  fresh();
  kt_model *model;
  kt_context *context;
  kt_open_options options = {.size = sizeof options, .variant = KT_BEST, .copy = 1, .name = "mine"};
  CHECK(kt_open_with(path, &options, &model) == KT_OK && kt_context_create(model, 0, NULL, &context) == KT_OK);
  kt_close(model);
  CHECK(truncate(path, 0) == 0 && run(context) == KT_OK);
  copy_file(path);
  CHECK(run(context) == KT_OK);
  kt_context_close(context);

  size_t nbytes = (size_t)size_of();
  char *content = malloc(nbytes + 1);
  int file = open(path, O_RDONLY);
  CHECK(content != NULL && read(file, content + 1, nbytes) == (ssize_t)nbytes && close(file) == 0);
  CHECK(kt_open_memory(content + 1, nbytes, &model) == KT_ERROR_ARGUMENT);
  CHECK(kt_open_memory_with(content + 1, nbytes, &options, &model) == KT_OK);
  CHECK(kt_context_create(model, 0, NULL, &context) == KT_OK);
  kt_close(model);
  memset(content, 0, nbytes);
  CHECK(run(context) == KT_OK);
  kt_context_close(context);
  CHECK(kt_open_memory_with(content, nbytes, &options, &model) == KT_ERROR_FORMAT);
  CHECK(strncmp(kt_last_error(), "mine: ", 6) == 0);
  free(content);
  CHECK(kt_open_with(folder, &options, &model) == KT_ERROR_FILE && model == NULL);
  CHECK(kt_open_with(path, NULL, &model) == KT_ERROR_ARGUMENT);
  options.size = 4;
  CHECK(kt_open_with(path, &options, &model) == KT_ERROR_ARGUMENT);
  CHECK(kt_open_memory_with(path, 64, &options, &model) == KT_ERROR_ARGUMENT);
}

/* ---- signals of others ---- */

static sigjmp_buf back;
static void jump(int number) { siglongjmp(back, number); }

/* Reads a page of a file that was cut. */
static void fault(void) {
  snprintf(other, sizeof other, "%s/other", folder);
  int file = open(other, O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(file >= 0 && ftruncate(file, 4096) == 0);
  volatile char *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
  CHECK(page != MAP_FAILED && ftruncate(file, 0) == 0);
  (void)page[0];
}

static void others_keep_their_signals(void) {
  fresh();
  kt_context *context = opened(1);
  if (sigsetjmp(back, 1) == 0) {
    fault();
    CHECK(!"it goes on");
  }
  if (sigsetjmp(back, 1) == 0) {
    raise(SIGBUS);
    CHECK(!"it goes on");
  }
  CHECK(run(context) == KT_OK);
  kt_context_close(context);
}

int main(int count, char **arguments) {
  CHECK(count >= 4);
  source = arguments[1];
  folder = arguments[2];
  gathering = arguments[3];
  if (count > 4) { /* nobody handles it */
    fresh();
    CHECK(run(opened(1)) == KT_OK);
    fault();
    return 1;
  }
  signal(SIGBUS, jump);
  renamed_and_deleted();
  renamed_or_marked();
  written();
  cut();
  written_alike();
  written_in_a_run();
  cut_in_a_run();
  indices_stay();
  cut_while_threads_run();
  copied();
  others_keep_their_signals();
  puts("done");
  return 0;
}
