/* Makes the plan for some shapes of an open one: the plan for the greatest extents, in which patches change numbers. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL (16 << 10) /* bytes: a kernel whose tensors have no more runs on one thread (`plan.py` has its reason) */

/* The value of a formula: a sum of products, whose factors are quotients that are rounded down.
 *
 * Its numbers are, for each product, a coefficient and the number of factors; for each of these the number of its terms,
 * a dimension and a factor for each, a constant, and a divisor of at least 1.  `extents` are counted in steps.  False where it is none, or too large. */
static bool evaluate(const kt_plan *plan, const kt_plan_patch *patch, const int64_t *extents, int64_t *value) {
  const int64_t *at = plan->numbers + patch->number, *end = at + patch->count;
  *value = 0;
  while (at < end) {
    if (end - at < 2) return false;
    int64_t product = *at++, factors = *at++;
    for (; factors > 0; factors--) {
      if (end - at < 3 || *at < 0 || *at > (end - at - 3) / 2) return false;
      int64_t terms = *at++, sum = at[2 * terms], divisor = at[2 * terms + 1];
      for (int64_t i = 0; i < terms; i++) {
        int64_t dimension = at[2 * i], term;
        if (dimension < 0 || dimension >= plan->open.dimension_count) return false;
        if (__builtin_mul_overflow(extents[dimension], at[2 * i + 1], &term) || __builtin_add_overflow(sum, term, &sum))
          return false;
      }
      at += 2 * terms + 2;
      if (divisor < 1) return false;
      int64_t quotient = sum / divisor - (sum % divisor < 0);
      if (__builtin_mul_overflow(product, quotient, &product)) return false;
    }
    if (__builtin_add_overflow(*value, product, value)) return false;
  }
  return true;
}

static const kt_plan_tensor *input_of(const kt_plan *plan, uint32_t input) {
  return &plan->tensors[plan->inputs[input].tensor];
}

static const char *name_of(const kt_plan *plan, uint32_t input) { return plan->text + plan->inputs[input].name; }

/* Reads the open extents off the shapes of inputs, counted in steps. */
static kt_status read_extents(const kt_plan *plan, const kt_shape *shapes, int64_t *extents) {
  for (uint32_t i = 0; i < plan->header.input_count; i++)
    if (shapes[i].rank != input_of(plan, i)->rank)
      return kt_fail(KT_ERROR_ARGUMENT, "input '%s' has %d dimensions, %d are needed", name_of(plan, i), shapes[i].rank,
                     input_of(plan, i)->rank);
  for (uint32_t i = 0; i < plan->open.dimension_count; i++) {
    const kt_plan_dimension *open = &plan->dimensions[i];
    int64_t extent = shapes[open->input].extents[open->axis];
    extents[i] = extent / open->step;
    if (extent < open->least || extent > open->greatest || (extent - open->least) % open->step != 0) {
      char steps[40] = "";
      if (open->step > 1) snprintf(steps, sizeof steps, " in steps of %lld", (long long)open->step);
      return kt_fail(KT_ERROR_ARGUMENT, "input '%s' has %lld elements along axis %u (%s); %lld to %lld%s are possible",
                     name_of(plan, open->input), (long long)extent, open->axis, plan->text + open->name,
                     (long long)open->least, (long long)open->greatest, steps);
    }
  }
  return KT_OK;
}

/* Applies the patches; false where a formula is none. */
static bool patch(const kt_plan *open, const int64_t *of, kt_plan_tensor *tensors, int64_t *extents, int64_t *sizes) {
  for (uint32_t i = 0; i < open->open.patch_count; i++) {
    const kt_plan_patch *patch = &open->patches[i];
    int64_t value;
    if (!evaluate(open, patch, of, &value) || value < 0) return false;
    switch (patch->subject) {
      case KT_EXTENT: extents[patch->place] = value; break;
      case KT_OFFSET: tensors[patch->place].offset = (uint64_t)value; break;
      default: sizes[patch->place] = value;
    }
  }
  for (uint32_t i = 0; i < open->header.tensor_count; i++) {
    uint64_t nbytes = tensors[i].bits / 8;
    for (int axis = 0; axis < tensors[i].rank; axis++)
      if (__builtin_mul_overflow(nbytes, (uint64_t)extents[tensors[i].extents + axis], &nbytes)) return false;
    tensors[i].nbytes = nbytes;
  }
  return true;
}

/* Whether no tensor is larger than in the open plan: for that one a context has room, and tensors of the arena lie apart. */
static bool has_room(const kt_plan *open, const kt_plan *made) {
  for (uint32_t i = 0; i < open->header.tensor_count; i++)
    if (made->tensors[i].nbytes > open->tensors[i].nbytes) return false;
  return true;
}

/* Gives small kernels one thread. */
static void limit_threads(const kt_plan *plan, kt_plan_operation *operations) {
  for (uint32_t i = 0; i < plan->header.operation_count; i++) {
    if (operations[i].opcode != KT_CALL || operations[i].threads != 0) continue;
    uint64_t nbytes = 0;
    for (uint32_t each = 0; each < operations[i].count; each++)
      nbytes += plan->tensors[plan->arguments[operations[i].arguments + each]].nbytes;
    if (nbytes <= SMALL) operations[i].threads = 1;
  }
}

/* Whether the shapes are those of the plan; else says which is not. */
static kt_status compare(const kt_plan *plan, const kt_shape *shapes) {
  for (uint32_t i = 0; i < plan->header.input_count; i++)
    for (int axis = 0; axis < shapes[i].rank; axis++) {
      int64_t given = shapes[i].extents[axis], wanted = plan->extents[input_of(plan, i)->extents + axis];
      if (given != wanted)
        return kt_fail(KT_ERROR_ARGUMENT, "input '%s' has %lld elements along axis %d, %lld are needed", name_of(plan, i),
                       (long long)given, axis, (long long)wanted);
    }
  return KT_OK;
}

kt_status kt_plan_shape(const kt_plan *open, const kt_shape *shapes, kt_plan *made) {
  const kt_plan_header *header = &open->header;
  size_t tensors = header->tensor_count * sizeof *open->tensors, extents = header->extent_count * sizeof *open->extents;
  size_t operations = header->operation_count * sizeof *open->operations, sizes = header->size_count * sizeof *open->sizes;
  size_t values = open->open.dimension_count * sizeof(int64_t);
  *made = *open;
  uint8_t *memory = made->memory = malloc(tensors + operations + extents + sizes + values + 1);
  if (memory == NULL) return kt_fail(KT_ERROR_MEMORY, "no memory for a plan");
  made->tensors = memcpy(memory, open->tensors, tensors);
  made->operations = memcpy(memory += tensors, open->operations, operations);
  made->extents = memcpy(memory += operations, open->extents, extents);
  made->sizes = memcpy(memory += extents, open->sizes, sizes);
  int64_t *found = (int64_t *)(memory += sizes);
  kt_status status = read_extents(open, shapes, found);
  if (status == KT_OK) {
    bool possible = patch(open, found, (kt_plan_tensor *)made->tensors, (int64_t *)made->extents, (int64_t *)made->sizes);
    const char *fault = possible ? kt_plan_fault(made) : "a formula";
    if (fault == NULL && !has_room(open, made)) fault = "an extent beyond the greatest";
    if (fault != NULL) status = kt_fail(KT_ERROR_FORMAT, "damaged plan (%s); copy the file again, or build it again", fault);
  }
  if (status == KT_OK) status = compare(made, shapes);
  if (status == KT_OK) limit_threads(made, (kt_plan_operation *)made->operations);
  else kt_plan_free(made);
  return status;
}

kt_range kt_plan_range(const kt_plan *plan, uint32_t input, uint32_t axis) {
  uint32_t place = input_of(plan, input)->extents + axis;
  kt_range range = {plan->extents[place], plan->extents[place], 0};
  for (uint32_t i = 0; i < plan->open.dimension_count; i++) {
    const kt_plan_dimension *open = &plan->dimensions[i];
    if (open->input == input && open->axis == axis) return (kt_range){open->least, open->greatest, open->step};
  }
  for (uint32_t i = 0; i < plan->open.patch_count; i++) {
    if (plan->patches[i].subject != KT_EXTENT || plan->patches[i].place != place) continue;
    int64_t *least = malloc(plan->open.dimension_count * sizeof *least + 1);
    for (uint32_t each = 0; least != NULL && each < plan->open.dimension_count; each++)
      least[each] = plan->dimensions[each].least / plan->dimensions[each].step;
    if (least == NULL || !evaluate(plan, &plan->patches[i], least, &range.least)) range.least = 0;
    free(least);
  }
  return range;
}
