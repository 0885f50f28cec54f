/* The CPU time that control groups leave to this process: `cpu.max` of version 2, `cpu.cfs_quota_us` of version 1.
 *
 * Every group on the way to the root has a limit of its own, and the smallest one holds. */
#define _GNU_SOURCE
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST 4096

/* The first line of a file; false where there is none. */
static bool read_line(const char *folder, const char *name, char line[64]) {
  char path[LONGEST];
  if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return false;
  FILE *file = fopen(path, "re");
  if (file == NULL) return false;
  bool read = fgets(line, 64, file) != NULL;
  fclose(file);
  return read;
}

/* Cores that a group may use; KT_NO_QUOTA where it says nothing, or no limit. */
static double limit_of(const char *folder) {
  char line[64];
  double spent = -1, period = 0;
  if (read_line(folder, "cpu.max", line)) {
    if (sscanf(line, "%lf %lf", &spent, &period) != 2) return KT_NO_QUOTA; /* "max" */
  } else if (read_line(folder, "cpu.cfs_quota_us", line)) {
    spent = atof(line);
    if (!read_line(folder, "cpu.cfs_period_us", line)) return KT_NO_QUOTA;
    period = atof(line);
  }
  return spent > 0 && period > 0 ? spent / period : KT_NO_QUOTA;
}

/* The smallest limit of the group `path` below `mount` and of those above it. */
static double smallest(const char *mount, const char *path) {
  char folder[LONGEST];
  double found = KT_NO_QUOTA;
  if (strstr(path, "..") != NULL) path = ""; /* outside of this namespace */
  if (snprintf(folder, sizeof folder, "%s%s", mount, path) >= (int)sizeof folder) return found;
  for (;;) {
    double limit = limit_of(folder);
    if (limit < found) found = limit;
    char *last = strrchr(folder + strlen(mount), '/');
    if (last == NULL) return found;
    *last = '\0';
  }
}

double kt_cpu_quota(const char *groups, const char *mount) {
  double found = KT_NO_QUOTA;
  FILE *file = fopen(groups, "re");
  if (file == NULL) return found;
  char line[LONGEST], own[LONGEST];
  while (fgets(line, sizeof line, file) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':'), *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    if (path == NULL) continue;
    *path++ = '\0';
    controllers++;
    if (*controllers != '\0') { /* version 1: a hierarchy of its own, called after its controllers */
      bool times = false;
      char *rest = NULL, list[256];
      snprintf(list, sizeof list, "%s", controllers);
      for (char *name = strtok_r(list, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest))
        times = times || strcmp(name, "cpu") == 0;
      if (!times || snprintf(own, sizeof own, "%s/%.255s", mount, controllers) >= (int)sizeof own) continue;
      double limit = smallest(own, path);
      if (limit < found) found = limit;
      snprintf(own, sizeof own, "%s/cpu", mount);
    } else {
      snprintf(own, sizeof own, "%s", mount);
    }
    double limit = smallest(own, path);
    if (limit < found) found = limit;
  }
  fclose(file);
  return found;
}
