/* Opens FILE where it is signed with the key of 64 hexadecimal digits: from its path and from memory.
 *
 * With a third argument, the system has no libcrypto. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kintune.h"

static int hidden;

void *dlopen(const char *name, int flags) {
  void *(*next)(const char *, int) = dlsym(RTLD_NEXT, "dlopen");
  return hidden && name != NULL && strstr(name, "libcrypto") != NULL ? NULL : next(name, flags);
}

static void say(kt_status status, kt_model *model) {
  printf("%d %d %s\n", status, model != NULL, status == KT_OK ? "" : kt_last_error());
  kt_close(model);
}

int main(int count, char **arguments) {
  unsigned char key[32];
  kt_model *model;
  hidden = count > 3;
  for (int i = 0; i < 32; i++) sscanf(arguments[2] + 2 * i, "%2hhx", &key[i]);
  kt_open_options options = {.size = sizeof options, .variant = KT_BEST, .trusted = key};
  kt_status status = kt_open_with(arguments[1], &options, &model);
  say(status, model);
  FILE *file = fopen(arguments[1], "rb");
  char *content = malloc(1 << 24);
  size_t nbytes = fread(content, 1, 1 << 24, file);
  status = kt_open_memory_with(content, nbytes, &options, &model);
  say(status, model);
  fclose(file);
  free(content);
  return 0;
}
