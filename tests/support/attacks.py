"""Machine code that means harm, in the place of a candidate's: what each does, and how it ends where it is contained.

The code is the body of a kernel (`tests.support.poison.compile_kernel`).  It says through the kernel's own error what
the system answered, so that a contained attack is named in its candidate's outcome; one that works says SUCCEEDED.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.support.poison import compile_kernel

__all__ = ["ATTACKS", "Attack", "End", "Targets", "attacking"]


class End(Enum):
    """How a contained attack ends."""

    REFUSED = "refused"  # the system says no, and the candidate's outcome says so
    KILLED = "killed"  # the process ends with SIGSYS
    ALONE = "alone"  # the process or its children end, or nobody else is met


@dataclass(frozen=True)
class Attack:
    """One attack: `name`, the `body` of its kernel, and how it ends; `needs` names a layer without which it works."""

    name: str
    body: str
    end: End = End.REFUSED
    needs: str = ""


@dataclass(frozen=True)
class Targets:
    """What attacks are aimed at: files outside of the process's own, and a port that somebody listens on."""

    other_job: Path
    store: Path
    records: Path
    model: Path
    shared: Path
    socket: Path
    port: int

    def defined(self) -> str:
        """The targets as macros of C."""
        paths = {"OTHER": self.other_job, "STORE": self.store, "RECORDS": self.records, "MODEL": self.model}
        paths |= {"SHARED": self.shared, "SOCKET": self.socket}
        return "".join(f'#define {name} "{path}"\n' for name, path in paths.items()) + f"#define PORT {self.port}\n"


_HEAD = """
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <tvm/ffi/c_api.h>

static int answer(long result) {
  char said[200];
  if (result < 0) snprintf(said, sizeof said, "refused: %s", strerror(errno));
  else snprintf(said, sizeof said, "SUCCEEDED with %ld", result);
  TVMFFIErrorSetRaisedFromCStr("RuntimeError", said);
  return -1;
}
static void *wait_for_ever(void *nothing) { pause(); return nothing; }
"""


def _open(path: str, flags: str = "O_RDONLY") -> str:
    return f"return answer(open({path}, {flags}, 0600));"


def _socket(family: str, kind: str = "SOCK_STREAM") -> str:
    return f"return answer(socket({family}, {kind}, 0));"


def _call(name: str, arguments: str = "0, 0, 0, 0, 0") -> str:
    return f"return answer(syscall(SYS_{name}, {arguments}));"


ATTACKS = (
    Attack("reads /etc/passwd", _open('"/etc/passwd"')),
    Attack("reads /etc/shadow", _open('"/etc/shadow"')),
    Attack("reads another user's job", _open("OTHER")),
    Attack("reads it by another way", _open('"/proc/self/root" OTHER')),
    Attack("lists the home of root", 'return answer(opendir("/root") ? 0 : -1);'),
    Attack("writes into the blob store", _open("STORE", "O_WRONLY")),
    Attack("adds to the blob store", _open('STORE ".new"', "O_WRONLY | O_CREAT"), End.ALONE),
    Attack("writes to the records", _open("RECORDS", "O_RDWR")),
    Attack("cuts its model", "return answer(truncate(MODEL, 0));"),
    Attack("deletes its model", "return answer(unlink(MODEL));"),
    Attack("moves its model away", 'return answer(rename(MODEL, MODEL ".gone"));'),
    Attack(
        "leaves a link for others to follow",
        'char name[300]; snprintf(name, 300, "%s/link", getenv("TMPDIR"));'
        ' return answer(symlink("/etc/passwd", name));',
    ),
    Attack(
        "keeps a second name of its model",
        'char name[300]; snprintf(name, 300, "%s/name", getenv("TMPDIR")); return answer(link(MODEL, name));',
    ),
    Attack("opens a socket", _socket("AF_INET")),
    Attack("sends datagrams", _socket("AF_INET6", "SOCK_DGRAM")),
    Attack("asks the kernel's network", _socket("AF_NETLINK", "SOCK_RAW")),
    Attack("sends raw packets", _socket("AF_PACKET", "SOCK_RAW")),
    Attack(
        "speaks to the orchestrator",
        """
        struct sockaddr_un at = {AF_UNIX, SOCKET};
        int end = socket(AF_UNIX, SOCK_STREAM, 0);
        return answer(end < 0 ? -1 : connect(end, (struct sockaddr *)&at, sizeof at));
        """,
    ),
    Attack(
        "connects to a server of this machine",
        """
        struct sockaddr_in at = {AF_INET, htons(PORT), {htonl(INADDR_LOOPBACK)}};
        int end = socket(AF_INET, SOCK_STREAM, 0);
        return answer(end < 0 ? -1 : connect(end, (struct sockaddr *)&at, sizeof at));
        """,
    ),
    Attack(
        "forks without end",
        """
        static pid_t born[4000]; int made = 0, why = 0;
        while (made < 4000 && (born[made] = fork()) > 0) made++;
        why = errno;
        if (made < 4000 && born[made] == 0) { pause(); _exit(0); }
        for (int i = 0; i < made; i++) { kill(born[i], SIGKILL); waitpid(born[i], 0, 0); }
        errno = why; return answer(made < 4000 ? -1 : made);
        """,
    ),
    Attack(
        "starts threads without end",
        """
        static pthread_t born[4000]; pthread_attr_t small; int made = 0, failed = 0;
        pthread_attr_init(&small); pthread_attr_setstacksize(&small, 16384);
        while (made < 4000 && !(failed = pthread_create(&born[made], &small, wait_for_ever, 0))) made++;
        for (int i = 0; i < made; i++) { pthread_cancel(born[i]); pthread_join(born[i], 0); }
        errno = failed; return answer(failed ? -1 : made);
        """,
    ),
    Attack(
        "fills the disk with one file",
        """
        char name[300]; static char zeros[1 << 20]; long put = 0;
        signal(SIGXFSZ, SIG_IGN);
        snprintf(name, 300, "%s/large", getenv("TMPDIR")); int file = open(name, O_CREAT | O_WRONLY, 0600);
        for (int i = 0; i < 4096 && put >= 0; i++) put = write(file, zeros, sizeof zeros);
        int why = errno; unlink(name); errno = why; return answer(put);
        """,
    ),
    Attack(
        "fills the disk with many files",
        """
        char name[300]; static char zeros[1 << 20]; long put = 0;
        for (int i = 0; i < 4096 && put >= 0; i++) {
          snprintf(name, 300, "%s/%d", getenv("TMPDIR"), i); int file = open(name, O_CREAT | O_WRONLY, 0600);
          put = file < 0 ? -1 : write(file, zeros, sizeof zeros); close(file);
        }
        int why = errno;
        for (int i = 0; i < 4096; i++) { snprintf(name, 300, "%s/%d", getenv("TMPDIR"), i); unlink(name); }
        errno = why; return answer(put);
        """,
        needs="namespaces",
    ),
    Attack("kills its parent", "kill(getppid(), SIGKILL); usleep(200000); return answer(-1);", End.ALONE),
    Attack(
        "looks for processes to kill",
        """
        char own[99];
        for (int other = 1; other < 65536; other++) {
          snprintf(own, 99, "/proc/self/task/%d", other);
          if (kill(other, 0) == 0 && access(own, F_OK)) return answer(other);
        }
        errno = EPERM; return answer(-1);
        """,
    ),
    Attack(
        "maps huge memory",
        "void *had = mmap(0, 1L << 45, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);"
        " return answer(had == MAP_FAILED ? -1 : 0);",
    ),
    Attack(
        "takes all memory",
        """
        static void *had[4096]; int i = 0;
        while (i < 4096 && (had[i] = malloc(1 << 26))) i++;
        int all = i == 4096;
        while (i--) free(had[i]);
        errno = ENOMEM; return answer(all ? 0 : -1);
        """,
    ),
    Attack(
        "starts a shell",
        'char *line[] = {"sh", "-c", ":", 0}; return answer(execve("/bin/sh", line, environ));', needs="Landlock",
    ),
    Attack("opens the machine's memory", _open('"/dev/mem"', "O_RDWR")),
    Attack("opens a disk", _open('"/dev/vda"')),
    Attack(
        "reads the environment of its parent",
        'char name[99]; snprintf(name, 99, "/proc/%d/environ", getppid());' + _open("name"), End.ALONE,
    ),
    Attack("reads a password in its environment", 'errno = ENOENT; return answer(getenv("KINTUNE_TOKEN") ? 0 : -1);'),
    Attack("writes to the kernel's settings", _open('"/proc/sys/kernel/core_pattern"', "O_WRONLY")),
    Attack("uses the shared memory of others", _open("SHARED", "O_RDWR")),
    Attack(
        "takes real-time priority",
        "struct sched_param most = {50}; return answer(sched_setscheduler(0, SCHED_FIFO, &most));",
    ),
    Attack("takes precedence", "return answer(setpriority(PRIO_PROCESS, 0, -20));"),
    Attack(
        "raises its limits",
        "struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY}; return answer(setrlimit(RLIMIT_FSIZE, &none));",
    ),
    Attack("counts events of the processor", _call("perf_event_open", "0, 0, -1, -1, 0")),
    Attack("queues calls past the filter", _call("io_uring_setup", "8, 0")),
    Attack("traces its parent", "return answer(ptrace(PTRACE_ATTACH, getppid(), 0, 0));", End.KILLED),
    Attack("reads its parent's memory", _call("process_vm_readv", "getppid(), 0, 0, 0, 0, 0"), End.KILLED),
    Attack("writes its parent's memory", _call("process_vm_writev", "getppid(), 0, 0, 0, 0, 0"), End.KILLED),
    Attack("mounts", _call("mount"), End.KILLED),
    Attack("makes namespaces", _call("unshare", "CLONE_NEWUSER"), End.KILLED),
    Attack("makes namespaces with a child", _call("clone", "CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0"), End.KILLED),
    Attack("enters namespaces", _call("setns", "0, 0"), End.KILLED),
    Attack("changes its root", _call("chroot", '"/"'), End.KILLED),
    Attack("loads a program into the kernel", _call("bpf"), End.KILLED),
    Attack("loads a module into the kernel", _call("init_module"), End.KILLED),
    Attack("makes a device", _call("mknodat", 'AT_FDCWD, "/tmp/disk", S_IFBLK | 0600, makedev(254, 0)'), End.KILLED),
    Attack("becomes root", _call("setuid", "0"), End.KILLED),
    Attack("handles faults of the kernel", _call("userfaultfd", "0"), End.KILLED),
    Attack("reads keys of the kernel", _call("keyctl"), End.KILLED),
    Attack("sets the clock", _call("settimeofday", "0, 0"), End.KILLED),
)  # fmt: skip
"""All attacks, more than thirty."""


def attacking(attack: Attack, targets: Targets) -> bytes:
    """The library of a kernel that makes this attack on these targets."""
    return compile_kernel(attack.body, targets.defined() + _HEAD + "#include <sys/sysmacros.h>\n")
