// Preloaded into user-mode-linux. Its kernel (6.1) keeps the extended state of a guest's process in a buffer of a fixed size, which
// ends before that of AMX. On a host with AMX it gives back less than it was given, the host's kernel refuses that, and the
// guest dies at its first process. Here what it gives back is made whole with what the host holds: no program of the guests uses
// AMX, so that part never changes.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

// More than any processor's extended state (AMX: 11 KB).
#define STATE_MAX 65536

typedef long (*ptrace_fn)(enum __ptrace_request, ...);

long ptrace(enum __ptrace_request request, ...) {
  static ptrace_fn next;
  if (!next) next = (ptrace_fn)dlsym(RTLD_NEXT, "ptrace");
  va_list rest;
  va_start(rest, request);
  int pid = va_arg(rest, int);
  void *addr = va_arg(rest, void *);
  void *data = va_arg(rest, void *);
  va_end(rest);
  if (request == PTRACE_SETREGSET && (long)addr == NT_X86_XSTATE) {
    const struct iovec *given = data;
    static char state[STATE_MAX]; // user-mode-linux has one thread that does this
    struct iovec whole = {state, sizeof state};
    if (next(PTRACE_GETREGSET, pid, addr, &whole) == 0 && given->iov_len < whole.iov_len) {
      memcpy(state, given->iov_base, given->iov_len);
      return next(request, pid, addr, &whole);
    }
  }
  return next(request, pid, addr, data);
}
