"""The system calls that a confined process may make: those of ordinary programs, by what they are for.

Everything else fails with EPERM, and what only an attack has a use for ends the process.  Names that an architecture
lacks are left out on it.  Calls that are made often come first, since a filter is read from its beginning.
"""

from __future__ import annotations

import errno

__all__ = ["ALLOWED", "DEADLY", "UNKNOWN", "filter_system_calls"]

ALLOWED = {
    "threads and waiting": (
        "futex sched_yield nanosleep clock_nanosleep restart_syscall rseq set_robust_list get_robust_list futex_waitv"
        " set_tid_address membarrier futex_wake futex_wait futex_requeue"
    ),
    "reading and writing": (
        "read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek sendfile splice tee"
        " copy_file_range fsync fdatasync sync_file_range fallocate ftruncate truncate fadvise64 readahead"
    ),
    "memory": (
        "mmap munmap mprotect mremap madvise brk mincore msync mlock mlock2 munlock mlockall munlockall memfd_create"
        " pkey_alloc pkey_free pkey_mprotect get_mempolicy"
    ),
    "files": (
        "open openat openat2 creat close close_range dup dup2 dup3 fcntl flock stat fstat lstat newfstatat statx statfs"
        " fstatfs access faccessat faccessat2 readlink readlinkat getdents getdents64 getcwd chdir fchdir mkdir mkdirat"
        " rmdir unlink unlinkat rename renameat renameat2 chmod fchmod fchmodat fchmodat2 utime utimes"
        " utimensat futimesat umask getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr cachestat"
    ),
    "events, pipes and sockets that are open": (
        "poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd"
        " eventfd2 pipe pipe2 socketpair sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg shutdown getsockopt"
        " setsockopt getsockname getpeername timerfd_create timerfd_settime timerfd_gettime signalfd signalfd4"
        " inotify_init1 inotify_add_watch inotify_rm_watch"
    ),
    "time": (
        "clock_gettime clock_getres gettimeofday time times getitimer setitimer alarm timer_create timer_settime"
        " timer_gettime timer_getoverrun timer_delete"
    ),
    "signals": (
        "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait rt_sigqueueinfo"
        " rt_tgsigqueueinfo sigaltstack kill tkill tgkill pause pidfd_send_signal"
    ),
    "processes": (
        "clone fork vfork execve execveat wait4 waitid exit exit_group pidfd_open getpid getppid gettid getpgid getpgrp"
        " setpgid getsid setsid arch_prctl prctl getcpu"
    ),
    "limits and priorities, within what the process has": (
        "getrlimit setrlimit prlimit64 getrusage sysinfo uname getpriority setpriority ioprio_get ioprio_set"
        " sched_getaffinity sched_setaffinity sched_getparam sched_setparam sched_getscheduler sched_setscheduler"
        " sched_getattr sched_setattr sched_get_priority_max sched_get_priority_min sched_rr_get_interval"
    ),
    "identity": (
        "getuid geteuid getgid getegid getresuid getresgid getgroups capget getrandom landlock_create_ruleset"
        " landlock_add_rule landlock_restrict_self seccomp"
    ),
    "terminals": "ioctl",
}
"""Names of system calls, by what they are for."""

DEADLY = (
    "ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd process_madvise userfaultfd"
    " mount umount2 pivot_root chroot move_mount open_tree fsopen fsmount fsconfig fspick mount_setattr unshare setns"
    " init_module finit_module delete_module kexec_load kexec_file_load bpf reboot swapon swapoff acct quotactl"
    " iopl ioperm open_by_handle_at name_to_handle_at settimeofday clock_settime adjtimex clock_adjtime"
    " sethostname setdomainname syslog add_key request_key keyctl lookup_dcookie nfsservctl vhangup"
    " mknod mknodat setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups capset"
)
"""Names of system calls after which the process is ended, so that its end names the attempt."""

UNKNOWN = "clone3 io_uring_setup io_uring_enter io_uring_register"
"""Names of system calls that seem not to exist: programs then use others, whose arguments can be judged."""

_NEW_NAMESPACES = 0x7E020000
"""The flags of `clone` that make namespaces: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""

_TERMINAL_INPUT = 0x5412
"""TIOCSTI, which types into a terminal."""


def filter_system_calls(*, network: bool) -> None:
    """Filter the system calls of this process and its children from now on.

    Sockets can be made with `network` alone; those that are open, and pairs of them, work.

    Raises:
        ImportError: the package `seccompy` is not installed.
        seccompy.SeccompError: the kernel refuses.
    """
    from seccompy import Action, ArgCmp, CmpOp, Filter, FilterFlag

    rules = Filter(default=Action.ERRNO | errno.EPERM, flags=FilterFlag.SPEC_ALLOW)
    known = _known
    for name in known("clone"):
        rules.kill(name, args=[ArgCmp(0, CmpOp.GT, (1 << 32) - 1)])
        for bit in (1 << position for position in range(32) if _NEW_NAMESPACES >> position & 1):
            rules.kill(name, args=[ArgCmp(0, CmpOp.MASKED_EQ, bit, mask=bit)])
    rules.errno("ioctl", errno.EPERM, args=[ArgCmp(1, CmpOp.MASKED_EQ, _TERMINAL_INPUT, mask=(1 << 32) - 1)])
    for names in ALLOWED.values():
        for name in known(names):
            rules.allow(name)
    if network:
        for name in known("socket connect bind listen accept accept4"):
            rules.allow(name)
    for name in known(DEADLY):
        rules.kill(name)
    for name in known(UNKNOWN):
        rules.errno(name, errno.ENOSYS)
    rules.load()


def _known(names: str) -> list[str]:
    """The names of those calls that this architecture has."""
    from seccompy import syscall_nr

    known = []
    for name in names.split():
        try:
            syscall_nr(name)
        except (KeyError, ValueError):
            continue
        known.append(name)
    return known
