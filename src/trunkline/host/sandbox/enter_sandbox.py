"""The small program that enters a sandbox and becomes the server; it makes no decisions.

It runs as its own process (``python -I -S``), started in the server's place, and imports nothing of the package. Its
instructions come in the environment, where other users do not see them; if one of them cannot be carried out, the
program exits with a message on stderr, and no server is started. By ``execve`` it becomes the server, so the process
that is started, watched and ended is the same one. The server's own variables never apply to this program: variables
that affect an interpreter or a loader would act before the sandbox is closed.
"""

# The signal module itself imports enum, which costs as much as everything else here.
import _signal  # type: ignore[import-not-found]
import os
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes
    from typing import Any

__all__ = ["NAME", "main", "pack", "unpack"]

#: The prefix of the variables that carry the record; a number follows.
NAME = "TRUNKLINE_SANDBOX_"
# The kernel limits the length of a variable.
_LONGEST = 100_000
_STATUS = 126  # As a shell does for a command that cannot be executed.

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # Landlock system calls, the same on all architectures.
_PATH_BENEATH = 1  # LANDLOCK_RULE_PATH_BENEATH.
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT = 38, 22, 24, 47  # linux/prctl.h.
_SECCOMP_FILTER = 2  # SECCOMP_MODE_FILTER.
_AMBIENT_CLEAR = 4  # PR_CAP_AMBIENT_CLEAR_ALL.
_CAP_VERSION = 0x20080522  # _LINUX_CAPABILITY_VERSION_3.
# Kept for root only, so that other users' files in its folders stay usable; the sandbox limits which folders those are.
_CAP_DAC_OVERRIDE = 1


def pack(record: "dict[str, Any]") -> dict[str, str]:
    """Encode a record as environment variables."""
    import json

    text = json.dumps(record)
    return {f"{NAME}{at // _LONGEST}": text[at : at + _LONGEST] for at in range(0, len(text), _LONGEST)}


def unpack(environ: "os._Environ[str] | dict[str, str]") -> "dict[str, Any]":
    """Decode a record from environment variables."""
    import json

    parts: list[str] = []
    while (part := environ.get(f"{NAME}{len(parts)}")) is not None:
        parts.append(part)
    record: dict[str, Any] = json.loads("".join(parts))
    return record


class SandboxFailed(Exception):
    """A part of the sandbox cannot be set up."""


class Kernel:
    """System calls that the standard library lacks."""

    def __init__(self) -> None:
        """Load the C library."""
        import ctypes

        self.ctypes = ctypes
        self.libc = ctypes.CDLL(None, use_errno=True)

    def call(self, what: str, number: int, *words: "int | ctypes.Array[Any] | None") -> int:
        """Make a system call; ``what`` names its purpose in an error."""
        return self._checked(what, self.libc.syscall(self.ctypes.c_long(number), *map(self._word, words)))

    def prctl(self, what: str, *words: "int | ctypes.Array[Any]") -> int:
        """Call prctl."""
        filled = (*words, 0, 0, 0, 0)[:5]
        return self._checked(what, self.libc.prctl(*map(self._word, filled)))

    def _word(self, word: "int | ctypes.Array[Any] | None") -> "Any":
        return self.ctypes.c_ulong(word & 0xFFFFFFFFFFFFFFFF) if isinstance(word, int) else word

    def _checked(self, what: str, result: int) -> int:
        if result < 0:
            raise SandboxFailed(f"{what}: {os.strerror(self.ctypes.get_errno())}")
        return result


def main() -> None:
    """Enter the sandbox and become the server."""
    try:
        record = unpack(os.environ)
        _close_descriptors()
        program, argv, env = _prepared(record)
        os.chdir(record["cwd"])
        limits = _limits(record["limits"], record["processes"])
        if record["close"]:
            _close(record)
        for set_limit, number, most in limits:
            set_limit(number, (most, most))
        # The interpreter ignores these signals, and a program it executes would inherit that.
        for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
            _signal.signal(number, _signal.SIG_DFL)
        os.execve(program, argv, env)
    except SandboxFailed as error:
        _end(f"cannot set up the sandbox: {error}")
    except OSError as error:
        _end(f"cannot start in the sandbox: {error}")
    except (KeyError, ValueError) as error:
        _end(f"cannot set up the sandbox: its instructions are missing ({error!r})")


def _end(text: str) -> None:
    os.write(2, f"trunkline: {text}\n".encode(errors="backslashreplace"))
    os._exit(_STATUS)


def _close_descriptors() -> None:
    """Close all descriptors except the standard streams: an open file stays usable inside a sandbox."""
    for name in os.listdir("/dev/fd"):
        if int(name) > 2:
            try:
                os.close(int(name))
            except OSError:
                continue


def _prepared(record: "dict[str, Any]") -> "tuple[str, list[str], dict[str, str]]":
    """Return program, arguments and environment; create the temporary folder and bubblewrap's memory files."""
    env = record["env"]
    if record["temporary"]:
        # The process id does not change from here on, and later tells whether the folder is still in use.
        folder = os.path.join(record["temporary"], str(os.getpid()))
        os.makedirs(folder, 0o700, exist_ok=True)
        env.setdefault("TMPDIR", folder)
        if record["landlock"]:
            record["landlock"]["rules"].append([folder, record["landlock"]["of_writing"]])
    if not record["bwrap"]:
        return record["program"], record["argv"], env
    words = [*record["bwrap"]["words"], *(part for name in env for part in ("--setenv", name, env[name]))]
    args = _in_memory("arguments", b"\0".join(map(os.fsencode, words)) + b"\0")
    filters = _in_memory("filter", bytes.fromhex(record["filter"]))
    options = ["--args", str(args), "--seccomp", str(filters)]
    path = record["bwrap"]["program"]
    return path, [path, *options, "--", record["program"], *record["argv"][1:]], {}


def _in_memory(name: str, data: bytes) -> int:
    fd = os.memfd_create(name, 0)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _limits(limits: "dict[str, int]", processes: "int | None") -> "list[tuple[Any, int, int]]":
    """Return the limits, looked up early: they are set last, and then apply to this program too."""
    import resource

    wanted = {"CORE": 0, **limits}
    if processes is not None:
        # The kernel counts all tasks of the user, so those that already run are added.
        wanted["NPROC"] = processes + _tasks_of_user()
    made = []
    for name, value in wanted.items():
        number = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(number)[1]
        made.append((resource.setrlimit, number, value if hard == resource.RLIM_INFINITY else min(value, hard)))
    return made


def _tasks_of_user() -> int:
    user, count = os.getuid(), 0
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if os.stat(f"/proc/{name}").st_uid == user:
                    count += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue
    return count


# --- restricting -----------------------------------------------------------------------------------------------------


def _close(record: "dict[str, Any]") -> None:
    """Drop privileges and apply Landlock and seccomp, irrevocably."""
    kernel = Kernel()
    _drop_privileges(kernel)
    kernel.prctl("no new privileges", _PR_SET_NO_NEW_PRIVS, 1)
    if record["landlock"]:
        _restrict(kernel, **record["landlock"])
    if record["filter"]:
        program = bytes.fromhex(record["filter"])
        steps = kernel.ctypes.create_string_buffer(program, len(program))
        address = kernel.ctypes.addressof(steps)
        head = kernel.ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, address))
        kernel.prctl("the filter of system calls", _PR_SET_SECCOMP, _SECCOMP_FILTER, head)


def _drop_privileges(kernel: Kernel) -> None:
    """Drop all capabilities permanently."""
    libc, ctypes = kernel.libc, kernel.ctypes
    kernel.prctl("privileges", _PR_CAP_AMBIENT, _AMBIENT_CLEAR)
    head = ctypes.create_string_buffer(struct.pack("=Ii", _CAP_VERSION, 0))
    data = ctypes.create_string_buffer(24)
    if libc.capget(head, data) < 0:
        raise SandboxFailed("cannot read the capabilities")
    kept = 0
    if os.geteuid() == 0:
        _lower_bound(kernel)
        kept = int(struct.unpack("=6I", data.raw)[1]) & 1 << _CAP_DAC_OVERRIDE
    if libc.capset(head, struct.pack("=6I", kept, kept, 0, 0, 0, 0)) < 0:
        raise SandboxFailed("cannot drop the capabilities")


def _lower_bound(kernel: Kernel) -> None:
    """Clear the bounding set, so that root does not regain capabilities by executing a program."""
    with open("/proc/sys/kernel/cap_last_cap", "rb") as file:
        last = int(file.read())
    for number in range(last + 1):
        if number != _CAP_DAC_OVERRIDE:
            try:
                kernel.prctl("privileges", _PR_CAPBSET_DROP, number)
            except SandboxFailed:
                # Root without CAP_SETPCAP: executing a program grants no new capabilities, so the bound is not needed.
                return


def _restrict(
    kernel: Kernel, *, handled: int, scoped: int, of_files: int, of_writing: int, rules: "list[tuple[str, int]]"
) -> None:
    """Apply a Landlock ruleset: the handled rights are denied except where a rule allows them."""
    # An older kernel knows only the beginning of this struct, and accepts it only without the rest.
    told = struct.pack("=QQQ", handled, 0, scoped) if scoped else struct.pack("=Q", handled)
    attributes = kernel.ctypes.create_string_buffer(told, len(told))
    rulesets = kernel.call("Landlock", _CREATE_RULESET, attributes, len(told), 0)
    for path, rights in rules:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            # A path that does not exist needs no rule.
            continue
        if not os.path.isdir(f"/proc/self/fd/{fd}"):
            rights &= of_files
        rule = kernel.ctypes.create_string_buffer(struct.pack("=Qi", rights, fd), 12)
        kernel.call(f"Landlock, {path}", _ADD_RULE, rulesets, _PATH_BENEATH, rule, 0)
        os.close(fd)
    kernel.call("Landlock", _RESTRICT_SELF, rulesets, 0)
    os.close(rulesets)


if __name__ == "__main__":
    sys.exit("this program is started by the host")
