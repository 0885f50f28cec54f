/* The text of the last failure, one for each thread. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char text[2048];

kt_status kt_fail(kt_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  for (char *at = text; *at; at++)
    if ((unsigned char)*at < ' ' || *at == 127) *at = ' '; /* line breaks, and codes that steer a terminal */
  return status;
}

const char *kt_last_error(void) { return text; }

uint32_t kt_version(void) { return (KT_VERSION_MAJOR << 16) + KT_VERSION_MINOR; }
