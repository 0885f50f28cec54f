/* Sorting, which kernels call by name: argsort, sort, top-k, and the sort of non-maximum suppression.
 *
 * Elements become 64-bit keys of the same order; NaN counts as the largest value, and equal elements keep their order.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#define INSERTED 16 /* up to so many elements are sorted by insertion */

typedef struct {
  uint64_t key;
  int64_t index;
} item;

static uint64_t key_of_bits(uint64_t bits, int width, bool is_nan) {
  uint64_t sign = (uint64_t)1 << (width - 1);
  if (is_nan) return UINT64_MAX;
  if (bits == sign) bits = 0; /* -0 is 0 */
  return bits & sign ? ~bits & (sign | (sign - 1)) : bits | sign;
}

static uint64_t key_at(const kt_dltensor *tensor, size_t place) {
  const void *data = (const uint8_t *)tensor->data + place * (tensor->bits / 8u);
  uint64_t bits = 0;
  memcpy(&bits, data, tensor->bits / 8u); /* little-endian */
  switch (tensor->code) {
    case 0: return (uint64_t)((int64_t)(bits << (64 - tensor->bits)) >> (64 - tensor->bits)) ^ (uint64_t)1 << 63;
    case 2:
    case 4: {
      int mantissa = tensor->code == 4 ? 7 : tensor->bits == 16 ? 10 : tensor->bits == 32 ? 23 : 52;
      uint64_t exponent = ((uint64_t)1 << (tensor->bits - 1 - mantissa)) - 1, fraction = ((uint64_t)1 << mantissa) - 1;
      bool is_nan = (bits >> mantissa & exponent) == exponent && (bits & fraction) != 0;
      return key_of_bits(bits, tensor->bits, is_nan);
    }
    default: return bits;
  }
}

/* Stable: ties keep their order. */
static void merge_sort(item *items, item *spare, size_t count) {
  if (count <= INSERTED) {
    for (size_t i = 1; i < count; i++) {
      item moved = items[i];
      size_t at = i;
      for (; at > 0 && items[at - 1].key > moved.key; at--) items[at] = items[at - 1];
      items[at] = moved;
    }
    return;
  }
  size_t half = count / 2;
  merge_sort(items, spare, half);
  merge_sort(items + half, spare, count - half);
  if (items[half - 1].key <= items[half].key) return;
  memcpy(spare, items, half * sizeof *spare);
  size_t left = 0, right = half, to = 0;
  while (left < half) items[to++] = right < count && items[right].key < spare[left].key ? items[right++] : spare[left++];
}

/* The axis that is sorted: `outer` rows of `inner` columns, each of `length` elements that lie `inner` apart. */
typedef struct {
  size_t outer;
  size_t length;
  size_t inner;
} rows;

static bool find_rows(const kt_dltensor *tensor, int64_t axis, rows *found) {
  if (axis < 0) axis += tensor->rank;
  if (axis < 0 || axis >= tensor->rank) return false;
  *found = (rows){1, (size_t)tensor->shape[axis], 1};
  for (int i = 0; i < tensor->rank; i++)
    if (i != axis) *(i < axis ? &found->outer : &found->inner) *= (size_t)tensor->shape[i];
  return true;
}

static void write_index(const kt_dltensor *tensor, size_t place, int64_t index) {
  void *data = (uint8_t *)tensor->data + place * (tensor->bits / 8u);
  if (tensor->code == 2) {
    if (tensor->bits == 64) *(double *)data = (double)index;
    else *(float *)data = (float)index;
  } else if (tensor->bits == 64) {
    *(int64_t *)data = index;
  } else {
    *(int32_t *)data = (int32_t)index;
  }
}

static bool holds_indices(const kt_dltensor *tensor) {
  return (tensor->bits == 32 || tensor->bits == 64) && tensor->code <= 2;
}

static const kt_dltensor *tensor_at(const kt_any *arguments, int32_t place) {
  return arguments[place].type == KT_ANY_TENSOR ? arguments[place].pointer : NULL;
}

static int refuse(const char *name) {
  char text[96] = "unknown arguments of ";
  strncat(text, name, sizeof text - 1 - strlen(text));
  kt_kernel_says(text);
  return -1;
}

/* Sorts each row of `input`, or the first `counts` elements of it, and writes the first `kept` elements and indices. */
static int sort_rows(const kt_dltensor *input, const kt_dltensor *counts, const kt_dltensor *values,
                     const kt_dltensor *indices, int64_t axis, size_t kept, bool ascending) {
  rows of;
  if (!find_rows(input, axis, &of)) return -1;
  if (of.outer * of.inner == 0 || of.length == 0) return 0;
  item *items = kt_workspace_alloc(1, 0, (of.length + of.length / 2 + 1) * sizeof *items, 0, 0);
  if (items == NULL) {
    kt_kernel_says("no memory to sort in");
    return -1;
  }
  size_t width = input->bits / 8u;
  for (size_t row = 0; row < of.outer; row++)
    for (size_t column = 0; column < of.inner; column++) {
      size_t from = row * of.length * of.inner + column, to = row * kept * of.inner + column, count = of.length;
      if (counts != NULL) {
        int32_t wanted = ((const int32_t *)counts->data)[row * of.inner + column];
        count = wanted < 0 ? 0 : (size_t)wanted < of.length ? (size_t)wanted : of.length;
      }
      for (size_t i = 0; i < of.length; i++) {
        uint64_t key = i < count ? key_at(input, from + i * of.inner) : 0;
        items[i] = (item){ascending ? key : ~key, (int64_t)i};
      }
      merge_sort(items, items + of.length, count);
      for (size_t i = 0; i < kept; i++) {
        size_t place = to + i * of.inner;
        if (indices != NULL) write_index(indices, place, items[i].index);
        if (values != NULL)
          memcpy((uint8_t *)values->data + place * width,
                 (const uint8_t *)input->data + (from + (size_t)items[i].index * of.inner) * width, width);
      }
    }
  kt_workspace_free(1, 0, items);
  return 0;
}

/* (input, indices, axis, ascending) */
static int argsort(void *self, const kt_any *a, int32_t count, kt_any *result) {
  (void)self, (void)result;
  const kt_dltensor *input = count == 4 ? tensor_at(a, 0) : NULL, *indices = count == 4 ? tensor_at(a, 1) : NULL;
  rows of;
  if (!input || !indices || !holds_indices(indices) || !find_rows(input, a[2].integer, &of)) return refuse("argsort");
  return sort_rows(input, NULL, NULL, indices, a[2].integer, of.length, a[3].integer != 0);
}

/* (input, values, axis, ascending) */
static int sort(void *self, const kt_any *a, int32_t count, kt_any *result) {
  (void)self, (void)result;
  const kt_dltensor *input = count == 4 ? tensor_at(a, 0) : NULL, *values = count == 4 ? tensor_at(a, 1) : NULL;
  rows of;
  if (!input || !values || values->bits != input->bits || !find_rows(input, a[2].integer, &of)) return refuse("sort");
  return sort_rows(input, NULL, values, NULL, a[2].integer, of.length, a[3].integer != 0);
}

/* (input, counts, indices, axis, ascending): only the first counts[row] elements of each row are sorted */
static int argsort_nms(void *self, const kt_any *a, int32_t count, kt_any *result) {
  (void)self, (void)result;
  const kt_dltensor *input = count == 5 ? tensor_at(a, 0) : NULL, *counts = count == 5 ? tensor_at(a, 1) : NULL;
  const kt_dltensor *indices = count == 5 ? tensor_at(a, 2) : NULL;
  rows of;
  if (!input || !counts || !indices || counts->bits != 32 || !holds_indices(indices) ||
      !find_rows(input, a[3].integer, &of))
    return refuse("argsort_nms");
  return sort_rows(input, counts, NULL, indices, a[3].integer, of.length, a[4].integer != 0);
}

/* The first letter of a text argument: "both", "values" or "indices". */
static char initial(const kt_any *argument) {
  if (argument->type == KT_ANY_TEXT && argument->text != NULL) return argument->text[0];
  if (argument->type == KT_ANY_SMALL_TEXT) return *(const char *)&argument->integer;
  return '\0';
}

/* (input, one or two outputs, k, axis, which outputs, ascending) */
static int topk(void *self, const kt_any *a, int32_t count, kt_any *result) {
  (void)self, (void)result;
  const kt_dltensor *input = count >= 6 ? tensor_at(a, 0) : NULL, *values = NULL, *indices = NULL;
  char which = count >= 6 ? initial(&a[count - 2]) : '\0';
  if (input && which == 'b' && count == 7) {
    values = tensor_at(a, 1);
    indices = tensor_at(a, 2);
  } else if (input && which == 'v') {
    values = tensor_at(a, 1);
  } else if (input && which == 'i') {
    indices = tensor_at(a, 1);
  }
  rows of;
  if (!input || (!values && !indices) || (values && values->bits != input->bits) || (indices && !holds_indices(indices)) ||
      !find_rows(input, a[count - 3].integer, &of))
    return refuse("topk");
  int64_t k = a[count - 4].integer;
  size_t kept = k < 1 || (size_t)k > of.length ? of.length : (size_t)k;
  return sort_rows(input, NULL, values, indices, a[count - 3].integer, kept, a[count - 1].integer != 0);
}

kt_kernel kt_builtin(const char *name) {
  static const struct {
    const char *name;
    kt_kernel function;
  } known[] = {
      {"tvm.contrib.sort.argsort", argsort},
      {"tvm.contrib.sort.argsort_nms", argsort_nms},
      {"tvm.contrib.sort.sort", sort},
      {"tvm.contrib.sort.topk", topk},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(known[i].name, name) == 0) return known[i].function;
  return NULL;
}
