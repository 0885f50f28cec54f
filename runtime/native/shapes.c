/* Finds the plan for the shapes of inputs; where there is none, the message lists the shapes of all plans. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>

/* A part of a message, cut off at the size of its text. */
typedef struct {
  char text[480];
  size_t used;
} line;

static void append(line *to, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int written = vsnprintf(to->text + to->used, sizeof to->text - to->used, format, arguments);
  va_end(arguments);
  if (written > 0) to->used += (size_t)written;
  if (to->used >= sizeof to->text) to->used = sizeof to->text - 1;
}

static bool same(const kt_shape *one, const kt_shape *other) {
  if (one->rank != other->rank) return false;
  for (int32_t i = 0; i < one->rank; i++)
    if (one->extents[i] != other->extents[i]) return false;
  return true;
}

/* The shape of an input of a plan, and its name; the plan and the input must exist. */
static kt_shape planned(const kt_model *model, int32_t plan, int32_t place, const char **name) {
  kt_tensor tensor = {.name = "", .rank = 0};
  kt_describe_input(model, plan, place, &tensor);
  if (name != NULL) *name = tensor.name;
  return (kt_shape){tensor.shape, tensor.rank};
}

/* Appends a name and a shape, such as "tokens=1x32". */
static void append_shape(line *to, const char *name, const kt_shape *shape, const char *separator) {
  append(to, "%s%.60s=", separator, name);
  if (shape->rank == 0) append(to, "scalar");
  for (int32_t i = 0; i < shape->rank && i < 8; i++) append(to, i ? "x%lld" : "%lld", (long long)shape->extents[i]);
  if (shape->rank > 8) append(to, "x...");
}

/* Whether the given shape of an input differs from its shape in some plan. */
static bool tells(const kt_model *model, const kt_shape *shapes, int32_t place) {
  for (int32_t plan = 0; plan < kt_plan_count(model); plan++) {
    kt_shape wanted = planned(model, plan, place, NULL);
    if (!same(&wanted, &shapes[place])) return true;
  }
  return false;
}

static kt_status refuse(const kt_model *model, const kt_shape *shapes, int32_t count) {
  line given = {.used = 0}, tuned = {.used = 0};
  for (int32_t plan = -1; plan < kt_plan_count(model); plan++) {
    const char *separator = plan > 0 ? "; " : "";
    for (int32_t place = 0; place < count; place++) {
      const char *name;
      kt_shape wanted = planned(model, plan < 0 ? 0 : plan, place, &name);
      if (!tells(model, shapes, place)) continue;
      append_shape(plan < 0 ? &given : &tuned, name, plan < 0 ? &shapes[place] : &wanted, separator);
      separator = ", ";
    }
  }
  return kt_fail(KT_ERROR_ARGUMENT, "the shapes %.160s were not tuned; tuned are: %s", given.text, tuned.text);
}

kt_status kt_find_plan(const kt_model *model, const kt_shape *shapes, int32_t count, int32_t *plan) {
  if (model == NULL || plan == NULL || (shapes == NULL && count > 0))
    return kt_fail(KT_ERROR_ARGUMENT, "kt_find_plan: a null pointer");
  if (count != kt_input_count(model))
    return kt_fail(KT_ERROR_ARGUMENT, "kt_find_plan: %d shapes given, %d needed", count, kt_input_count(model));
  kt_status status = KT_OK; /* of an open plan */
  for (*plan = 0; *plan < kt_plan_count(model); ++*plan) {
    kt_plan made;
    if (model->plans[*plan].plan.header.flags & KT_IS_OPEN) {
      status = kt_plan_shape(&model->plans[*plan].plan, shapes, &made);
      if (status != KT_OK) continue;
      kt_plan_free(&made);
      return KT_OK;
    }
    int32_t place = 0;
    for (; place < count; place++) {
      kt_shape wanted = planned(model, *plan, place, NULL);
      if (!same(&wanted, &shapes[place])) break;
    }
    if (place == count) return KT_OK;
  }
  *plan = 0;
  if (status != KT_OK) return status; /* its message says what the plan takes */
  return refuse(model, shapes, count);
}
