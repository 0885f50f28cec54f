/* The extensions of this CPU, as Linux lists them in /proc/cpuinfo on every architecture. */
#define _GNU_SOURCE
#include "internal.h"

#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#define ARCH_REQ_XCOMP_PERM 0x1023
#define TILE_DATA 18

static char list[16384]; /* " name name ... ": the features of the first processor, in the plan's spelling */
static char hidden[1024]; /* in the same form, the features that tests hide with KINTUNE_HIDE_ISA */
static char model_name[128];
static struct utsname about;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Linux's names of features for which LLVM has others.  Plans have LLVM's names, with letters and digits alone. */
static const char *const synonyms[][2] = {{"pni", "sse3"}, {"asimd", "neon"}, {"asimdhp", "fp16"}, {"asimddp", "dotprod"}};

/* Appends the next name of `text` to `names`, a list of `size` bytes; returns what follows it. */
static const char *append_name(const char *text, char *names, size_t size) {
  char name[64];
  size_t length = 0;
  for (; *text == ' ' || *text == '\t'; text++) continue;
  for (; *text != '\0' && *text != ' ' && *text != '\t'; text++)
    if (isalnum((unsigned char)*text) && length < sizeof name - 1) name[length++] = *text;
  name[length] = '\0';
  const char *known = name;
  for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++)
    if (strcmp(name, synonyms[i][0]) == 0) known = synonyms[i][1];
  size_t used = strlen(names);
  if (length > 0) snprintf(names + used, size - used, "%s ", known);
  return text;
}

static void append_names(const char *text, char *names, size_t size) {
  snprintf(names, size, " ");
  while (*text != '\0') text = append_name(text, names, size);
}

/* Copies what follows the colon of the first line that begins with `key`; "" if there is none. */
static void copy_entry(const char *text, const char *key, char *entry, size_t size) {
  entry[0] = '\0';
  const char *line = strstr(text, key);
  if (line == NULL || (line = strchr(line, ':')) == NULL) return;
  line += 1 + strspn(line + 1, " \t");
  size_t length = strcspn(line, "\n");
  while (length > 0 && isspace((unsigned char)line[length - 1])) length--;
  if (length < size) snprintf(entry, size, "%.*s", (int)length, line);
}

static void read_list(void) {
  if (uname(&about) != 0) about.machine[0] = '\0';
  char text[sizeof list - 2];
  size_t length = 0;
  int descriptor = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
  if (descriptor >= 0) {
    for (ssize_t got; length < sizeof text - 1; length += (size_t)got)
      if ((got = read(descriptor, text + length, sizeof text - 1 - length)) <= 0) break;
    close(descriptor);
  }
  text[length] = '\0';
  char features[sizeof text];
  copy_entry(text, "\nmodel name", model_name, sizeof model_name);
  copy_entry(text, "\nflags", features, sizeof features);
  if (features[0] == '\0') copy_entry(text, "\nFeatures", features, sizeof features);
  append_names(features, list, sizeof list);
  const char *hide = getenv("KINTUNE_HIDE_ISA");
  append_names(hide ? hide : "", hidden, sizeof hidden);
}

static bool has(const char *feature) {
  char padded[80];
  if ((size_t)snprintf(padded, sizeof padded, " %s ", feature) >= sizeof padded) return false;
  return strstr(list, padded) != NULL && strstr(hidden, padded) == NULL;
}

bool kt_cpu_runs(const kt_plan *plan, char *missing, size_t size) {
  pthread_once(&once, read_list);
  const char *machine = plan->text + plan->header.machine;
  if (strcmp(machine, about.machine) != 0) {
    snprintf(missing, size, "is for %s, this machine is %s", machine, about.machine);
    return false;
  }
  size_t used = 0;
  for (uint32_t i = 0; i < plan->header.isa_count; i++) {
    const char *feature = plan->text + plan->isa[i];
    if (has(feature)) continue;
    const char *lead = used ? ", " : "uses instructions that this CPU lacks: ";
    int added = snprintf(missing + used, size - used, "%s%s", lead, feature);
    if (added < 0 || used + (size_t)added >= size) return false;
    used += (size_t)added;
  }
  return used == 0;
}

bool kt_cpu_is_same(const kt_plan *plan) {
  pthread_once(&once, read_list);
  return model_name[0] != '\0' && strcmp(plan->text + plan->header.cpu, model_name) == 0;
}

kt_status kt_cpu_prepare(const kt_plan *plan) {
#if defined(__x86_64__)
  for (uint32_t i = 0; i < plan->header.isa_count; i++)
    if (strcmp(plan->text + plan->isa[i], "amxtile") == 0)
      if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) != 0)
        return kt_fail(KT_ERROR_UNSUPPORTED, "uses AMX, which the kernel of this system does not permit");
#else
  (void)plan;
#endif
  return KT_OK;
}
