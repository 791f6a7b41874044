"""The tiny program that goes into a sandbox and becomes the server; it knows nothing, and does what it is told.

It runs as a process of its own (``python -I -S``), started in the server's place, and imports nothing of the package.
What to do was decided before and travels in the environment, where other users do not see it; whatever of it cannot be
done ends the program with a sentence on stderr, and no server is started. By ``execve`` it becomes the server, so the
process that was started, watched and ended is the same one. The server's own variables never reach this program: what
steers an interpreter or a loader would run before the sandbox is closed.
"""

# The signal module proper imports enum, which costs as much as all else.
import _signal  # type: ignore[import-not-found]
import os
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes
    from typing import Any

__all__ = ["NAME", "main", "pack", "unpack"]

#: The variables that carry the record: this name with a number after it.
NAME = "TRUNKLINE_SANDBOX_"
# The kernel takes no longer text.
_LONGEST = 100_000
_STATUS = 126

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT = 38, 22, 24, 47
_SECCOMP_FILTER = 2
_AMBIENT_CLEAR = 4
_CAP_VERSION = 0x20080522
# Root alone has it: files of others in its folders stay usable, and the sandbox says which folders those are.
_CAP_DAC_OVERRIDE = 1


def pack(record: "dict[str, Any]") -> dict[str, str]:
    """Put a record into variables."""
    import json

    text = json.dumps(record)
    return {f"{NAME}{at // _LONGEST}": text[at : at + _LONGEST] for at in range(0, len(text), _LONGEST)}


def unpack(environ: "os._Environ[str] | dict[str, str]") -> "dict[str, Any]":
    """Read a record out of variables."""
    import json

    parts: list[str] = []
    while (part := environ.get(f"{NAME}{len(parts)}")) is not None:
        parts.append(part)
    record: dict[str, Any] = json.loads("".join(parts))
    return record


class Refused(Exception):
    """Something that was asked for cannot be done."""


class Kernel:
    """The calls that the standard library does not have."""

    def __init__(self) -> None:
        """Find the C library."""
        import ctypes

        self.ctypes = ctypes
        self.libc = ctypes.CDLL(None, use_errno=True)

    def call(self, what: str, number: int, *words: "int | ctypes.Array[Any] | None") -> int:
        """Make a system call; one that fails says what it was for."""
        return self._checked(what, self.libc.syscall(self.ctypes.c_long(number), *map(self._word, words)))

    def prctl(self, what: str, *words: "int | ctypes.Array[Any]") -> int:
        """Change something of this process."""
        filled = (*words, 0, 0, 0, 0)[:5]
        return self._checked(what, self.libc.prctl(*map(self._word, filled)))

    def _word(self, word: "int | ctypes.Array[Any] | None") -> "Any":
        return self.ctypes.c_ulong(word & 0xFFFFFFFFFFFFFFFF) if isinstance(word, int) else word

    def _checked(self, what: str, result: int) -> int:
        if result < 0:
            raise Refused(f"{what}: {os.strerror(self.ctypes.get_errno())}")
        return result


def main() -> None:
    """Go into the sandbox, and become the server."""
    try:
        record = unpack(os.environ)
        _let_go()
        program, argv, env = _prepared(record)
        os.chdir(record["cwd"])
        limits = _limits(record["limits"], record["processes"])
        if record["close"]:
            _close(record)
        for set_limit, number, most in limits:
            set_limit(number, (most, most))
        # The interpreter ignores these, and a program that is started would go on ignoring them.
        for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
            _signal.signal(number, _signal.SIG_DFL)
        os.execve(program, argv, env)
    except Refused as error:
        _end(f"the sandbox cannot be made: {error}")
    except OSError as error:
        _end(f"cannot start in the sandbox: {error}")
    except (KeyError, ValueError) as error:
        _end(f"the sandbox cannot be made: there is no record of it ({error!r})")


def _end(text: str) -> None:
    os.write(2, f"trunkline: {text}\n".encode(errors="backslashreplace"))
    os._exit(_STATUS)


def _let_go() -> None:
    """Close everything but the three streams: what is open stays open in a sandbox."""
    for name in os.listdir("/dev/fd"):
        if int(name) > 2:
            try:
                os.close(int(name))
            except OSError:
                continue


def _prepared(record: "dict[str, Any]") -> "tuple[str, list[str], dict[str, str]]":
    """Make what the server is started with: its temporary folder, and what bubblewrap reads."""
    env = record["env"]
    if record["temporary"]:
        # The number stays this process's through all that follows, and tells later whether the folder is in use.
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
    """Give the limits to set: the last thing, since they hold for this program too, and nothing is found by then."""
    import resource

    wanted = {"CORE": 0, **limits}
    if processes is not None:
        # The kernel counts all that its user runs, so what runs already is added.
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


# --- closing ---------------------------------------------------------------------------------------------------------


def _close(record: "dict[str, Any]") -> None:
    """Take away what the server is not to have; from here on it does not come back."""
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
    """Give up every privilege, for good."""
    libc, ctypes = kernel.libc, kernel.ctypes
    kernel.prctl("privileges", _PR_CAP_AMBIENT, _AMBIENT_CLEAR)
    head = ctypes.create_string_buffer(struct.pack("=Ii", _CAP_VERSION, 0))
    data = ctypes.create_string_buffer(24)
    if libc.capget(head, data) < 0:
        raise Refused("privileges cannot be read")
    kept = 0
    if os.geteuid() == 0:
        _lower_bound(kernel)
        kept = int(struct.unpack("=6I", data.raw)[1]) & 1 << _CAP_DAC_OVERRIDE
    if libc.capset(head, struct.pack("=6I", kept, kept, 0, 0, 0, 0)) < 0:
        raise Refused("privileges cannot be given up")


def _lower_bound(kernel: Kernel) -> None:
    """Have root not get them back by starting a program."""
    with open("/proc/sys/kernel/cap_last_cap", "rb") as file:
        last = int(file.read())
    for number in range(last + 1):
        if number != _CAP_DAC_OVERRIDE:
            try:
                kernel.prctl("privileges", _PR_CAPBSET_DROP, number)
            except Refused:
                # Root without this privilege: no new ones are had by starting a program, so the bound is not needed.
                return


def _restrict(
    kernel: Kernel, *, handled: int, scoped: int, of_files: int, of_writing: int, rules: "list[tuple[str, int]]"
) -> None:
    """Have Landlock refuse what is handled but where a rule allows it."""
    # An older kernel knows only the beginning of this, and takes it only if the rest is left out.
    told = struct.pack("=QQQ", handled, 0, scoped) if scoped else struct.pack("=Q", handled)
    attributes = kernel.ctypes.create_string_buffer(told, len(told))
    rulesets = kernel.call("Landlock", _CREATE_RULESET, attributes, len(told), 0)
    for path, rights in rules:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            # What is not there cannot be given.
            continue
        if not os.path.isdir(f"/proc/self/fd/{fd}"):
            rights &= of_files
        rule = kernel.ctypes.create_string_buffer(struct.pack("=Qi", rights, fd), 12)
        kernel.call(f"Landlock, {path}", _ADD_RULE, rulesets, _PATH_BENEATH, rule, 0)
        os.close(fd)
    kernel.call("Landlock", _RESTRICT_SELF, rulesets, 0)
    os.close(rulesets)


if __name__ == "__main__":
    sys.exit("run by the host")
