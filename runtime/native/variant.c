/* The variants of a file: each has plans for one kind of CPU, one for each combination of shapes. */
#define _GNU_SOURCE
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *machine_of(const kt_plan *plan) { return plan->text + plan->header.machine; }

/* Whether two plans are for the same CPU and the same weights, and have as many inputs and outputs. */
static bool agree(const kt_plan *one, const kt_plan *other) {
  const kt_plan_header *left = &one->header, *right = &other->header;
  if (left->weights_offset != right->weights_offset || left->weights_bytes != right->weights_bytes ||
      left->weights_checksum != right->weights_checksum || left->isa_count != right->isa_count)
    return false;
  for (uint32_t i = 0; i < left->isa_count; i++)
    if (strcmp(one->text + one->isa[i], other->text + other->isa[i]) != 0) return false;
  return strcmp(machine_of(one), machine_of(other)) == 0 && strcmp(one->text + left->cpu, other->text + right->cpu) == 0 &&
         left->input_count == right->input_count && kt_plan_own_outputs(one) == kt_plan_own_outputs(other);
}

kt_status kt_variants_read(const kt_file *file, const char *path, kt_plan *plans, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    char name[32];
    kt_bytes content;
    snprintf(name, sizeof name, "plan%u.bin", i);
    kt_status status = kt_file_member(file, path, name, &content);
    if (status != KT_OK || (status = kt_plan_read(content, path, &plans[i])) != KT_OK) return status;
    const kt_plan_header *header = &plans[i].header;
    if (header->number != i || header->total != count)
      return kt_fail(KT_ERROR_FORMAT, "%s: damaged: a plan is missing", path);
    uint32_t before = i == 0 ? 0 : plans[i - 1].header.variant;
    if (header->variant != before && (i == 0 || header->variant != before + 1))
      return kt_fail(KT_ERROR_FORMAT, "%s: damaged: the plans of a variant are missing", path);
    if (i > 0 && header->variant == before && !agree(&plans[i - 1], &plans[i]))
      return kt_fail(KT_ERROR_FORMAT, "%s: damaged: two plans of a variant differ in more than their shapes", path);
  }
  return KT_OK;
}

static bool is_better(const kt_plan *one, const kt_plan *other) {
  bool same = kt_cpu_is_same(one);
  if (same != kt_cpu_is_same(other)) return same;
  return one->header.isa_count > other->header.isa_count;
}

static void append(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void append(char *text, size_t size, const char *format, ...) {
  size_t used = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + used, size - used, format, arguments);
  va_end(arguments);
}

kt_status kt_variants_choose(const kt_plan *plans, uint32_t count, int32_t wanted, const char *path, uint32_t *first,
                             uint32_t *chosen) {
  char reasons[1536] = "";
  uint32_t variants = plans[count - 1].header.variant + 1;
  *chosen = 0;
  if (wanted != KT_BEST && (wanted < 0 || (uint32_t)wanted >= variants))
    return kt_fail(KT_ERROR_ARGUMENT, "%s: has no variant %d; there are %u, from 0", path, wanted, variants);
  for (uint32_t i = 0, next; i < count; i = next) {
    uint32_t number = plans[i].header.variant;
    for (next = i + 1; next < count && plans[next].header.variant == number;) next++;
    if (wanted != KT_BEST && number != (uint32_t)wanted) continue;
    char missing[256];
    bool runs = kt_cpu_runs(&plans[i], missing, sizeof missing);
    if (runs && *chosen > 0 && !is_better(&plans[i], &plans[*first])) continue;
    if (runs && kt_cpu_prepare(&plans[i]) == KT_OK) {
      *first = i;
      *chosen = next - i;
      continue;
    }
    if (variants > 1) append(reasons, sizeof reasons, "%svariant %u ", reasons[0] ? "; " : "", number);
    append(reasons, sizeof reasons, "%s", runs ? kt_last_error() : missing);
  }
  if (*chosen > 0) return KT_OK;
  const char *advice = variants == 1 ? "" : ", and add it with `kintune merge`";
  return kt_fail(KT_ERROR_UNSUPPORTED, "%s: %s; build it again for this machine with `kintune compile`%s", path, reasons,
                 advice);
}
